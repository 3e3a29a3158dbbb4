"""What `degarble fix` says to a person: the steps, what stays and what to fetch, and how to take it back."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from degarble.fixes.editor import RENAMED
from degarble.fixes.interface import Edit
from degarble.repairing.fix import Outcome
from degarble.repairing.plan import Plan
from degarble.repairing.step import Refused, Step
from degarble.report.visible import MAX_TEXT, visible, visible_lines

WIDTH = 100
MAX_EDITS = 4
DIGEST = "sha256:"


def render(outcome: Outcome) -> str:
    """The whole text; what names from files would do to a terminal is spelled out."""
    return "\n".join(visible(line, MAX_TEXT) for line in _lines(outcome)) + "\n"


def _lines(outcome: Outcome) -> Iterator[str]:
    plan = outcome.plan
    for number, step in enumerate(plan.steps, start=1):
        yield from _step(number, step)
    if not plan.steps:
        yield _nothing(plan)
    for refused in plan.refused:
        yield from _refusal(refused)
    left = len(plan.after.causes)
    yield ""
    if outcome.out is not None:
        number = len(outcome.changed)
        changed = f"{number} file{'' if number == 1 else 's'} changed"
        yield f"wrote {outcome.out}: {changed}" + (", all others are links" if plan.steps else "")
        if plan.steps:
            yield f"to take it back: degarble fix --undo {outcome.out} --out DIR"
    else:
        yield "nothing was written"
    yield f"causes before: {len(plan.before.causes)}, after: {left}"
    yield from _next(outcome)


def _nothing(plan: Plan) -> str:
    if not plan.before.causes:
        return "nothing to repair"
    return "no step is safe" if any(one.needs_unsafe for one in plan.refused) else "no step is possible"


def _next(outcome: Outcome) -> Iterator[str]:
    """What the reader can do now."""
    plan = outcome.plan
    if plan.steps and outcome.out is None:
        yield "next: the same command with --out DIR in place of --plan writes the repaired copy"
    if any(one.needs_unsafe for one in plan.refused):
        yield "next: --plan --unsafe shows what the judgements would change; with --unsafe they are made"
    if any(one.fetch for one in plan.refused):
        yield "next: a healthy copy of the same export, given as --reference DIR, brings back what has to be fetched"


def _step(number: int, step: Step) -> Iterator[str]:
    kind = "safe" if step.is_safe else "judgement"
    yield f"{number}. {step.repair} ({kind})  for {step.finding.rule} {step.finding.name}"
    yield from _paragraph(step.finding.message)
    if step.judgement is not None:
        yield from _paragraph(f"judgement: {step.judgement}")
    for edit in step.edits[:MAX_EDITS]:
        what = edit.tensor or edit.key or "the file"
        yield f"     {edit.file}: {what}: {edit.what}{_change(edit)}"
    if len(step.edits) > MAX_EDITS:
        yield f"     and {len(step.edits) - MAX_EDITS} more changes"


def _change(edit: Edit) -> str:
    """What tells more than the word: a new name, or a value; never two digests of a tensor."""
    if edit.tensor is None:
        return f": {_shown(edit.before)} -> {_shown(edit.after)}"
    return f" to {edit.after}" if edit.what == RENAMED else ""


def _refusal(refused: Refused) -> Iterator[str]:
    yield f"stays: {refused.finding.rule} {refused.finding.name} at {refused.finding.location.name()}"
    yield from _paragraph(refused.finding.message)
    yield from _paragraph(f"not repaired: {refused.reason}")
    for item in refused.fetch[:MAX_EDITS]:
        yield f"     fetch {item}"
    if len(refused.fetch) > MAX_EDITS:
        yield f"     and {len(refused.fetch) - MAX_EDITS} more"


def _paragraph(text: str) -> Iterator[str]:
    yield from textwrap.wrap(visible_lines(text), WIDTH, initial_indent="     ", subsequent_indent="     ")


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value)
    if text.startswith(DIGEST):
        return text[: len(DIGEST) + 12] + "…"
    return text if len(text) <= 60 else text[:57] + "…"

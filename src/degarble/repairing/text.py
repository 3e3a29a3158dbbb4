"""What `degarble fix` says to a person: the steps, what stays and what to fetch, and how to take it back."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from degarble.repairing.fix import Outcome
from degarble.repairing.step import Refused, Step

WIDTH = 100
MAX_EDITS = 4


def render(outcome: Outcome) -> str:
    """The whole text."""
    return "\n".join(_lines(outcome)) + "\n"


def _lines(outcome: Outcome) -> Iterator[str]:
    plan = outcome.plan
    for number, step in enumerate(plan.steps, start=1):
        yield from _step(number, step)
    if not plan.steps:
        yield "nothing to repair" if not plan.before.causes else "no step is possible"
    for refused in plan.refused:
        yield from _refusal(refused)
    left = len(plan.after.causes)
    yield ""
    if outcome.out is not None:
        yield f"wrote {outcome.out}: {len(outcome.changed)} files changed" + (
            ", all others are links" if plan.steps else ""
        )
        if plan.steps:
            yield f"to take it back: degarble fix --undo {outcome.out} --out DIR"
    else:
        yield "nothing was written"
    yield f"causes before: {len(plan.before.causes)}, after: {left}"


def _step(number: int, step: Step) -> Iterator[str]:
    kind = "safe" if step.is_safe else "judgement"
    yield f"{number}. {step.repair} ({kind})  for {step.finding.rule} {step.finding.name}"
    yield from _paragraph(step.finding.message)
    if step.judgement is not None:
        yield from _paragraph(f"judgement: {step.judgement}")
    for edit in step.edits[:MAX_EDITS]:
        what = edit.tensor or edit.key or "the file"
        change = f": {_shown(edit.before)} -> {_shown(edit.after)}" if edit.tensor is None else ""
        yield f"     {edit.file}: {what}: {edit.what}{change}"
    if len(step.edits) > MAX_EDITS:
        yield f"     and {len(step.edits) - MAX_EDITS} more changes"


def _refusal(refused: Refused) -> Iterator[str]:
    yield f"stays: {refused.finding.rule} {refused.finding.name} at {refused.finding.location.name()}"
    yield from _paragraph(refused.reason)
    for item in refused.fetch[:MAX_EDITS]:
        yield f"     fetch {item}"
    if len(refused.fetch) > MAX_EDITS:
        yield f"     and {len(refused.fetch) - MAX_EDITS} more"


def _paragraph(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent="     ", subsequent_indent="     ")


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"

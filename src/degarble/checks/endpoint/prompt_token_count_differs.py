"""RUN805: prompts that the endpoint cuts into other tokens than its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.errors import EvidenceMissing
from degarble.finding import Confidence, Finding, Location
from degarble.probe.exchange import Answer, Exchange, Kind
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check


@check("RUN805", level=Level.LIVE)
def prompt_token_count_differs(probe_run: ProbeRun) -> Iterator[Finding]:
    """The endpoint counts other prompt tokens than the model's tokenizer.

    ## What it looks for
    `usage.prompt_tokens` of ten short texts against the count of the tokenizer given with `--tokenizer`, with what it
    writes in front; of chats against the template's text. Without a tokenizer only a doubled first token is seen,
    where the endpoint tells its ids. Exact for texts; for chats likely, as a server may have been started with
    another template.

    ## Why output turns to garbage
    Another tokenizer gives the model ids that mean something else. A doubled or missing BOS shifts every attention
    pattern that was trained on one.

    ## What you will see
    A salad of tokens where the tokenizer is another one; short prompts fail and long ones do better where BOS is at
    fault.

    ## How to tell it from its look-alikes
    A constant surplus over all texts is BOS or the template; one that varies from text to text is the tokenizer.
    Servers that add a system prompt show a large constant in chats only.

    ## How to confirm
    `POST /tokenize` with one of the texts, and compare ids with `degarble tokenizer verify`.

    ## How to repair it
    Serve the tokenizer's files that belong to the model; TPL507 says who writes BOS twice. Not safe unattended.

    ## References
    research: tokenizers, double BOS
    """
    answers = probe_run.of("token-counts")
    if probe_run.expected is None:
        yield from _doubled(answers)
        return
    for kind in Kind:
        counted = [
            (one, answer.prompt_tokens) for one, answer in answers if one.ask.kind is kind and answer.prompt_tokens
        ]
        yield from _compared(counted, probe_run.expected.counts, kind)


def _compared(counted: list[tuple[Exchange, int]], expected: Mapping[str, int], kind: Kind) -> Iterator[Finding]:
    surplus = {
        one.name: found - expected[f"{kind} {one.ask.prompt}"]
        for one, found in counted
        if f"{kind} {one.ask.prompt}" in expected
    }
    if not any(surplus.values()):
        return
    values = sorted(set(surplus.values()))
    if len(values) == 1:
        what = f"{values[0]:+d} in every prompt: {_story(values[0])}"
    else:
        what = f"{values[0]:+d} to {values[-1]:+d}, varying from text to text: another tokenizer"
    wrong = [name for name, value in surplus.items() if value]
    yield Finding(
        location=Location(request=wrong[0]),
        places=tuple(Location(request=name) for name in wrong) if len(wrong) > 1 else (),
        message=f"{len(wrong)} of {len(surplus)} {kind} prompts are counted otherwise than by the tokenizer: {what}",
        confidence=Confidence.PROVEN if kind is Kind.TEXT else Confidence.LIKELY,
        measured={"surplus": [*surplus.values()]},
        bound={"surplus": 0},
    )


def _story(surplus: int) -> str:
    if surplus == 1:
        return "a second BOS, or one that the tokenizer does not write"
    return "BOS is missing" if surplus == -1 else "another template, or a system prompt"


def _doubled(answers: list[tuple[Exchange, Answer]]) -> Iterator[Finding]:
    """Raises EvidenceMissing where no ids are told."""
    told = [(one, answer.prompt_token_ids) for one, answer in answers if len(answer.prompt_token_ids) > 1]
    if not told:
        raise EvidenceMissing("no --tokenizer given, and the endpoint does not tell the ids of its prompts")
    doubled = [(one, ids[0]) for one, ids in told if ids[0] == ids[1]]
    if len(doubled) == len(told) > 1 and len({first for _, first in doubled}) == 1:
        one, first = doubled[0]
        yield Finding(
            location=Location(request=one.name, token_id=first),
            message=f"all {len(told)} prompts begin with id {first} twice: BOS is written by the template and by the tokenizer",
            confidence=Confidence.PROVEN,
            measured={"doubled": len(doubled)},
            bound={"doubled": 0},
        )

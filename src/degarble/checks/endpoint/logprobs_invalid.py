"""RUN808: log probabilities that are none."""

from __future__ import annotations

import math
from collections.abc import Iterator

from degarble.errors import EvidenceMissing
from degarble.finding import Finding, Location, Measure
from degarble.probe.exchange import Answer
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check

ROUNDING = 1e-3
MAX_SUM = 1.01
"""bf16 has three decimal digits."""


@check("RUN808", level=Level.LIVE, symptom_of=("RUN801",))
def logprobs_invalid(probe_run: ProbeRun) -> Iterator[Finding]:
    """Log probabilities that no distribution can have.

    ## What it looks for
    At every position: the sampled token's is a number and at most 0 (0.001 for rounding), and so are the
    alternatives'; the probabilities of the alternatives add up to at most 1 (1.01 for rounding in bf16).

    ## Why output turns to garbage
    Logits were scaled, masked or normalised wrongly, or the softmax ran over a part of the vocabulary.

    ## What you will see
    Answers may look normal. Evaluations and rejection sampling built on the numbers go wrong.

    ## How to tell it from its look-alikes
    An alternative of minus infinity, written as null or -9999, is a token that was banned: no finding. NaN of the
    sampled token is RUN801's proof, and this finding its symptom.

    ## How to confirm
    Ask for one token with `logprobs` and add up the probabilities.

    ## How to repair it
    Update the engine; look at its options on log probabilities. Not safe unattended.

    ## References
    huggingface/trl#6693, vllm-project/vllm#48585
    """
    answers = [(one, answer) for one, answer in probe_run.all_answers() if answer.scores]
    if not answers:
        raise EvidenceMissing("the endpoint tells no log probabilities")
    for one, answer in answers:
        found = first_invalid(answer)
        if found is not None:
            position, message, measured = found
            yield Finding(
                location=Location(request=one.name, position=position),
                message=f"{one.name}, token {position}: {message}",
                measured=measured,
                bound={"logprob": 0.0, "sum": 1.0},
                fold="logprobs",
            )


def first_invalid(answer: Answer) -> tuple[int, str, dict[str, Measure]] | None:
    """Position, what is wrong, and the number."""
    for at, score in enumerate(answer.scores):
        if score.logprob is None or math.isnan(score.logprob):
            return at, "the log probability of the sampled token is no number", {"logprob": str(score.logprob)}
        numbers = [number for _, number in score.top if number is not None]
        worst = max([score.logprob, *numbers], key=lambda number: math.inf if math.isnan(number) else number)
        if math.isnan(worst) or worst > ROUNDING:
            return at, f"a log probability of {worst:.4g}, which is above 0 or no number", {"logprob": _shown(worst)}
        total = sum(math.exp(number) for number in numbers)
        if total > MAX_SUM:
            return at, f"the alternatives' probabilities add up to {total:.4f}", {"sum": round(total, 4)}
    return None


def _shown(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)

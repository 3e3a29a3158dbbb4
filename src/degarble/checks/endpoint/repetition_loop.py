"""RUN802: answers that loop, and not as a healthy greedy model does."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.errors import EvidenceMissing
from degarble.finding import Confidence, Finding, Location, Severity
from degarble.probe.loop import Loop, find_loop
from degarble.probe.probe_run import ProbeRun
from degarble.registry import Level, check

NATURAL = 0.5
"""Nats a token: loops of healthy models stay below."""
DAMAGED = 1.5
SAME = 0.02
MIN_DISCORDANT = 5
"""Prompts of a sign test: 0.5 to the 5th is 3 %."""


@check(
    "RUN802",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    level=Level.LIVE,
    symptom_of=("RUN801", "RUN809", "RUN811"),
)
def repetition_loop(probe_run: ProbeRun) -> Iterator[Finding]:
    """Answers end in a loop that certainty does not explain.

    ## What it looks for
    Period of at most 64 tokens, at least 4 copies, at least 64 tokens, at least two letters or digits in the pattern.
    Beside a reference a loop counts only where the reference's answer to the same prompt does not loop, and where its
    entropy is 0.5 nats or more; without log probabilities by a sign test over the prompts (5 that only this endpoint
    loops on and none the other way, chance 3 %). Without a reference a loop counts where its entropy is above 1.5
    nats, or where two unrelated loops have the same entropy within 0.02 above 0.5. Measured: natural loops 0.06 to
    0.31 nats, 3-bit damage up to 2.6 with median 1.76, a wrong zero point 4.83 for every prompt.

    ## Why output turns to garbage
    Damaged weights flatten or fix the distribution: whatever was said last becomes as good as anything else.

    ## What you will see
    The same words again and again until max_tokens.

    ## How to tell it from its look-alikes
    12 % of the greedy answers of an undamaged 135M model loop; it is certain of every word then, and nothing is found
    here. Tables, code and lists of rules do not fit the pattern: on 727 texts that people wrote it never fired.

    ## How to confirm
    Ask the same with temperature 0.6. What goes away was the sampling, what stays is in weights or cache. Then
    `degarble compare`.

    ## How to repair it
    `degarble check` and `degarble compare` on the checkpoint; penalties only hide it. Nothing is safe to change
    unattended.

    ## References
    research: detectors of garbage, vllm-project/vllm#40097, ggml-org/llama.cpp#26039
    """
    found = {exchange.label: loop for exchange, answer in probe_run.of("answers") if (loop := find_loop(answer))}
    if not found:
        return
    damaged = _beside_reference(probe_run, found) if probe_run.reference else _by_entropy(found)
    for label, loop in damaged.items():
        entropy = None if loop.entropy is None else round(loop.entropy, 3)
        yield Finding(
            location=Location(request=f"answers/{label}"),
            message=f"answers/{label} repeats {probe_run.quote(loop.pattern)} {loop.copies} times"
            + (f", at {entropy} nats a token" if entropy is not None else ""),
            measured={"period": loop.period, "copies": loop.copies, "entropy": entropy, "looping": len(found)},
            bound={"natural_entropy": NATURAL},
            fold="loop",
        )


def _beside_reference(probe_run: ProbeRun, found: dict[str, Loop]) -> dict[str, Loop]:
    theirs = {one.label: one.answer for one in probe_run.reference or () if one.answer is not None}
    natural = {label for label, answer in theirs.items() if find_loop(answer)}
    alone = {label: loop for label, loop in found.items() if label in theirs and label not in natural}
    certain = {label: loop for label, loop in alone.items() if loop.entropy is not None and loop.entropy >= NATURAL}
    if certain:
        return certain
    is_many = len(alone) >= MIN_DISCORDANT and not natural - found.keys()
    return alone if is_many and all(loop.entropy is None for loop in alone.values()) else {}


def _by_entropy(found: dict[str, Loop]) -> dict[str, Loop]:
    """Raises EvidenceMissing where nothing tells a natural loop from damage."""
    known = {label: loop.entropy for label, loop in found.items() if loop.entropy is not None}
    if not known:
        raise EvidenceMissing(
            f"{len(found)} answers loop; without log probabilities or --reference that proves nothing"
        )
    return {label: loop for label, loop in found.items() if label in known and _is_damage(label, known)}


def _is_damage(label: str, known: dict[str, float]) -> bool:
    value = known[label]
    others = [other for name, other in known.items() if name != label]
    return value > DAMAGED or (value > NATURAL and any(abs(value - other) <= SAME for other in others))

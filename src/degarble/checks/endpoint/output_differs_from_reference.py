"""RUN812: answers that a healthy endpoint does not give."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.errors import EvidenceMissing
from degarble.finding import Confidence, Finding, Location, Severity
from degarble.probe.batches import AGAIN, ALONE
from degarble.probe.probe_run import ProbeRun
from degarble.probe.top_divergence import top_divergence
from degarble.registry import Level, check

MIN_KL = 0.05
"""Nats: FP8 costs 0.02."""
DAMAGE = 0.5
NOISE_FACTOR = 3.0


@check(
    "RUN812",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    level=Level.LIVE,
    symptom_of=("RUN801", "RUN802", "RUN803", "RUN805", "RUN806", "RUN807", "RUN808", "RUN809", "RUN811"),
)
def output_differs_from_reference(probe_run: ProbeRun) -> Iterator[Finding]:
    """The endpoint's distributions differ from the reference's beyond noise.

    ## What it looks for
    Both are asked the same nine questions with log probabilities. KL divergence from the reference over the
    alternatives that both tell, all others as one lump, which is a lower bound; position by position up to the first
    token that differs. The bound is 0.05 nats, or three times what the endpoint differs from itself. Above 0.5 nats,
    or where most first tokens differ, the message says so.

    ## Why output turns to garbage
    The model behind the endpoint computes something else: weights, template, tokenizer, dtype, cache.

    ## What you will see
    Anything from slightly worse answers to garbage.

    ## How to tell it from its look-alikes
    Honest quantisation has its price: about 0.3 to 0.4 nats for 4 bits on a small model, less on large ones, 0.02 for
    FP8. Beside a reference of the same format the bound can be taken as it stands.

    ## How to confirm
    `degarble compare` of both checkpoints says which layer it is; equal there, it is the engine.

    ## How to repair it
    See the causes above it in the report. Nothing is safe to change on this number alone.

    ## References
    research: numerics; detectors of garbage
    """
    if probe_run.reference is None:
        raise EvidenceMissing("no --reference given")
    theirs = {one.label: one.answer for one in probe_run.reference if one.answer is not None}
    pairs = [(one, theirs[one.label], answer) for one, answer in probe_run.of("answers") if one.label in theirs]
    found = [(one, value) for one, their, mine in pairs if (value := top_divergence(their, mine)) is not None]
    if not found:
        raise EvidenceMissing("the endpoint and its reference do not both tell log probabilities with alternatives")
    positions = sum(value.positions for _, value in found)
    mean = sum(value.mean * value.positions for _, value in found) / positions
    bound = max(MIN_KL, NOISE_FACTOR * own_noise(probe_run))
    if mean <= bound:
        return
    agreeing = sum(value.agreeing for _, value in found)
    yield Finding(
        location=Location(request=max(found, key=lambda pair: pair[1].mean)[0].name),
        places=tuple(Location(request=one.name) for one, value in found if value.mean > bound),
        message=f"KL divergence from the reference {mean:.3g} nats over {positions} positions, {agreeing} of them with the same "
        f"token; 4-bit weights of a small model cost about 0.3 to 0.4"
        + (", so this is damage" if mean > DAMAGE else ""),
        measured={"kl": round(mean, 4), "positions": positions, "agreeing": agreeing},
        bound={"kl": round(bound, 4)},
    )


def own_noise(probe_run: ProbeRun) -> float:
    """Divergence of the endpoint from itself, over the prompts that were asked alone and again."""
    asked = {(one.group, one.label): one.answer for one in probe_run.exchanges if one.probe == "batches" and one.answer}
    values = [
        value.mean
        for (group, label), answer in asked.items()
        if group == ALONE and (again := asked.get((AGAIN, label))) and (value := top_divergence(answer, again))
    ]
    return sum(values) / len(values) if values else 0.0

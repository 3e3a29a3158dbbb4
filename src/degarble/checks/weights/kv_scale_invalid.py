"""WGT224: a scale of the KV cache that no cache can use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from degarble.architectures.canonical import template_of
from degarble.checkpoint.interface import TensorInfo
from degarble.checks.kvcache.broken import broken
from degarble.checks.weights.explained_by import DAMAGED_FILE
from degarble.finding import Confidence, Finding, Fix, Location
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict

SMALLEST = 1e-6
LARGEST = 1e3
"""amax / 448: keys of the worst model known reach 921, so 2; a scale of 1e3 stands for keys of 448,000."""


@check("WGT224", level=Level.CONTENT, symptom_of=("QNT117", *DAMAGED_FILE))
def kv_scale_invalid(
    kv_scales: Mapping[str, str], tensors: Mapping[str, TensorInfo], profiles: Mapping[str, TensorProfile]
) -> Iterator[Finding]:
    """A stored scale of the KV cache is zero, negative, not a number, or beyond what keys and values can need.

    ## What it looks for
    Every key, value, query and probability scale under attention modules: NaN, infinity, zero or less are errors,
    proven. Outside [1e-6, 1000] is an error too, as likely: scales are the largest key over 448, and the worst model
    known has keys of about 900. All values are read; only four healthy scales were at hand (largest 0.0082), so the
    bounds are wide on purpose. In a trace, every scale that the engine tells of, by the same bounds, and that a layer's
    key or value scale is the same where it is written and where it is read.

    ## Why output turns to garbage
    Keys are divided by the scale when they are cached. Zero gives infinity or NaN; a scale a thousand times too large
    rounds every key to zero. Engines take a negative one as "none", or stop.

    ## What you will see
    An assertion (`k_scale > 0`), NaN, or text that ignores the prompt as soon as the cache is read, that is from the
    second token on. With an unquantised cache nothing.

    ## How to tell it from its look-alikes
    Exactly 1.0 is what exporters write when they did not calibrate, and legal. Missing scales are QNT117.

    ## How to confirm
    Serve once with `--kv-cache-dtype auto`: if the fault goes, the scales are the reason.

    ## How to repair it
    Calibrate the KV cache again, or set the scales to 1.0, which most models bear. That changes quality, so it is not
    done unattended.

    ## References
    sgl-project/sglang#27131, sgl-project/sglang#40243, vllm-project/vllm#46264
    """
    for name, kind in kv_scales.items():
        profile = profiles.get(name)
        if profile is None or kind.endswith("zero_point") or not profile.count:
            continue
        what, confidence = _verdict(profile)
        if what is not None:
            yield _finding(tensors[name], kind, profile, what, confidence)


@check("WGT224", level=Level.LIVE, symptom_of=("KVC623",))
def kv_scale_invalid_in_trace(trace: Verdict) -> Iterator[Finding]:
    """A scale of the KV cache as the engine used it; see the page of the rule."""
    return broken(trace, "WGT224", "scale")


def _verdict(profile: TensorProfile) -> tuple[str | None, Confidence | None]:
    counts = profile.counts
    if profile.nonfinite:
        return "not a number", None
    if profile.is_zero or (counts is not None and counts.zeros):
        return "zero", None
    if counts is not None and counts.negatives:
        return "negative", None
    low = counts.min_positive if counts is not None else None
    if (profile.absmax or 0) > LARGEST or (low is not None and low < SMALLEST):
        return "implausible", Confidence.LIKELY
    return None, None


def _finding(info: TensorInfo, kind: str, profile: TensorProfile, what: str, confidence: Confidence | None) -> Finding:
    owner = info.name.rpartition(".")[0]
    _, layer, _ = template_of(owner)
    return Finding(
        location=Location(file=info.file, tensor=info.name, module=owner, layer=layer),
        message=f"{info.name} is {what} (largest magnitude {profile.absmax}): no {kind} can be that",
        confidence=confidence,
        measured={"absmax": profile.absmax, "nonfinite": profile.nonfinite},
        bound={"min": SMALLEST, "max": LARGEST},
        fold=what,
        fix=Fix(id="calibrate-kv-cache", safe=False),
    )

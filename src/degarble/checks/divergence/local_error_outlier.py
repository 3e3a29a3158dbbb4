"""DIV902: a component whose own error is more than its bits should cost."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.forward_pass import ForwardPass
from degarble.finding import Confidence, Finding
from degarble.registry import Level, check


@check("DIV902", confidence=Confidence.LIKELY, level=Level.FORWARD, symptom_of=("DIV903",))
def local_error_outlier(forward_pass: ForwardPass) -> Iterator[Finding]:
    """On the reference's own input, a component is further from the reference than its rounding can explain.

    ## What it looks for
    Every linear, expert and router of the candidate is run on the *reference's* input, so that nothing inherited counts.
    Gains of norms are folded into the weights behind them and folds between neighbours are divided out, then a ladder of
    tests is climbed: slope of the weights against the reference's (healthy within 0.011 of 1), the worst row's slope,
    z = rms(error / sigma) with sigma from the stored scales (healthy 0.93 to 1.21), the worst row's z, and both in weight
    space. Bounds depend on what the module's peers show: exact copy, plain rounding, compensated (GPTQ), or unknown.
    Norms, operators of the config (rotary base, epsilon, scaling), embedding and token ids are tested as well.

    ## Why output turns to garbage
    A lost scale, a wrong zero point, a row in the wrong place, a fold that one consumer does not know of: the weight
    loads, its shape fits, and the layer computes something else.

    ## What you will see
    Anything from nothing to noise. Most single faults of this kind stay below healthy 4-bit noise at the output, which is
    why they are looked for locally; `planted_kl` says what the fault alone costs.

    ## How to tell it from its look-alikes
    Quantisation noise has z near 1 in every row. A module compensated by GPTQ far above its peers is a warning with its
    damage beside it. Rotated weights (QuaRot, SpinQuant) differ everywhere by design: compare them after undoing the
    rotation. A fine-tuned model differs everywhere from its base: take the model that was quantised as the reference.

    ## How to confirm
    Dequantise the named tensor, subtract the reference's, divide by the step: honest rounding is uniform in ±0.5.

    ## How to repair it
    Quantise the named module again from the reference, or copy the named value of the config from it. Not safe
    unattended: it presumes that the reference is the model that was quantised.

    ## References
    vllm-project/llm-compressor#1765, vllm-project/llm-compressor#2102, arXiv 1906.10465 (probabilistic rounding bounds)
    """
    for blame in forward_pass.blames:
        measured = dict(blame.measured)
        for name in ("planted_kl", "honest_kl", "restored_kl", "total_kl"):
            value = getattr(blame, name)
            if value is not None:
                measured[name] = round(value, 6)
        yield Finding(
            location=blame.places[0],
            places=blame.places if len(blame.places) > 1 else (),
            message=blame.message,
            severity=blame.severity,
            measured=measured,
            bound=blame.bound,
            damage=blame.planted_kl or 0.0,
        )

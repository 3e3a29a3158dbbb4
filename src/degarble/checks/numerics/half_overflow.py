"""NUM302: a number beyond the range of the dtype the model is served in."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.overflow_walk import OverflowWalk, RangeLeft
from degarble.finding import Finding, Fix
from degarble.registry import Level, check

SCORES = "q.k"


@check("NUM302", level=Level.FORWARD, symptom_of=("DIV903", "DIV902"))
def half_overflow(overflow_walk: OverflowWalk) -> Iterator[Finding]:
    """Run in this dtype, as an engine computes, a value leaves the range: infinity, NaN, or a norm of zeros.

    ## What it looks for
    The model is run layer by layer in the arithmetic of each engine profile (residual stream, its sums, gains of norms,
    sums in linears and attention, cache, router, clamps). The first module, token and place whose number is not finite is
    reported, with the longest beginning that stays whole and the share of outputs lost. A norm whose sum of squares
    overflows in half gives exact zeros, no NaN: that, and values held at the end of the range, are reported as such.

    ## Why output turns to garbage
    fp16 ends at 65504. An infinity in the stream makes every later token NaN; zeros silence the token's layer.

    ## What you will see
    "!!!!", NaN, or empty text; from the first token where massive activations sit on it, else from some length on.

    ## How to tell it from its look-alikes
    NaN with any dtype is damage: WGT202 or DIV903. Only scores beyond the range: NUM304. The profile says which of its
    cells nobody has read in a source.

    ## How to confirm
    Serve the same prompt in bf16: the fault goes.

    ## How to repair it
    Serve in bf16, or keep the named modules in fp32. Where the stream or the product of gate and up is too large, dividing
    what writes it by a power of two, and multiplying what reads it, keeps the function.

    ## References
    huggingface/transformers#27179, vllm-project/vllm#13232, microsoft/onnxruntime#29043, ggml-org/llama.cpp#27016
    """
    for one in overflow_walk.left:
        if one.place != SCORES:
            yield finding_of(one)


def finding_of(one: RangeLeft) -> Finding:
    """One place, with engines in whose arithmetic it happens, and those where it does not."""
    what = {"zeros": "a norm gives exact zeros", "clamped": "values are held at the end of the range"}
    finite = f"; stays finite in {', '.join(one.finite_engines)}" if one.finite_engines else ""
    return Finding(
        location=one.location,
        message=f"{one.dtype} in {', '.join(one.engines)}: {what.get(one.kind, 'not finite')} at the {one.place} of "
        f"{one.location.module}, |x| {one.value:.5g} against {one.bound:.5g}, from token {one.token} on; "
        f"{one.safe_tokens} tokens are safe, {one.lost_share:.2%} of outputs lost{finite}",
        measured={
            "value": one.value,
            "place": one.place,
            "kind": one.kind,
            "dtype": one.dtype,
            "engines": list(one.engines),
            "finite_engines": list(one.finite_engines),
            "token": one.token,
            "max_safe_length": one.safe_tokens,
            "nan_rate": one.lost_share,
            "harmed_rate": one.harmed_share,
        },
        bound={"largest": one.bound},
        fix=Fix(id="serve-in-bfloat16", safe=False),
    )

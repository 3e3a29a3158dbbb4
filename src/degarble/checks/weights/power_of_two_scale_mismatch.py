"""WGT214: scales that were rounded to powers of two after the codes had been made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import ModuleProfile
from degarble.registry import Level, check

MIN_SCALES = 8
MAX_SHARE = 0.9


@check(
    "WGT214",
    level=Level.CONTENT,
    confidence=Confidence.LIKELY,
    symptom_of=("WGT201", "WGT202", *DAMAGED_FILE, *WRONG_READING),
)
def power_of_two_scale_mismatch(modules: Modules, module_profiles: Mapping[str, ModuleProfile]) -> Iterator[Finding]:
    """All scales are powers of two, yet every block reaches the largest code: the scales were rounded afterwards.

    ## What it looks for
    FP8 and FP4 weights whose scales, all of them, are powers of two, in modules with at least eight. If codes were made
    with those scales, the largest code of a block is anywhere in the upper half of the range: few healthy 128-blocks
    reach 448 (@F214 in the worst tensor, which has few blocks), @M214 of MXFP4 blocks reach 6. If codes were made with
    exact scales, every block does. Bound: 90 % of the sampled blocks.

    ## Why output turns to garbage
    The codes belong to scales that are up to twice smaller. Every block is off by a factor of its own between 1 and 2.
    A saver quantised with the exact scale and stored the rounded one, or an engine's rounding (UE8M0 for Blackwell)
    was applied to a file without quantising again.

    ## What you will see
    Token soup; perplexity 132,709 in a 135M model with all layers rounded up.

    ## How to tell it from its look-alikes
    Healthy UE8M0 and MX files have powers of two with ordinary codes. Ordinary fp32 scales are powers of two in at
    most 20 % of the blocks. A module with fewer than eight scales is not judged, nor one whose scales are all equal:
    weights drawn evenly from an interval have the same largest value in every block.

    ## How to confirm
    Count the blocks whose largest code is 448 (E4M3) or 6 (E2M1). Compare the weights of a block with the source: the
    ratio is constant inside and differs from block to block.

    ## How to repair it
    Quantise again from the original weights with rounded scales. The exact scales are lost, so nothing can be done
    unattended.

    ## References
    huggingface/transformers#46763, huggingface/transformers#47030, vllm-project/vllm#38083
    """
    for module in modules.values():
        profile = module_profiles.get(module.name)
        if profile is None or profile.scales is None or profile.reach is None:
            continue
        count = profile.scales.shape[0] * profile.scales.shape[1]
        is_uneven = (profile.scales.absmax or 0.0) > (profile.scales.min_positive or 0.0)
        if count >= MIN_SCALES and is_uneven and profile.scales.power_of_two == 1.0 and profile.reach > MAX_SHARE:
            yield _finding(module, profile, count)


def _finding(module: StoredModule, profile: ModuleProfile, count: int) -> Finding:
    share = profile.reach or 0.0
    return Finding(
        location=module.place("scale"),
        message=f"{module.place('scale').tensor}: all {count} scales are powers of two, and {share:.0%} of the sampled "
        "blocks reach the largest code: the scales were rounded after the codes were made",
        measured={"share_reaching_largest": round(share, 4), "power_of_two": 1.0, "scales": count},
        bound={"share_max": MAX_SHARE},
        fold="rounded",
        fix=Fix(id="requantize-module", safe=False),
    )

"""WGT214: scales that were rounded to powers of two after the codes had been made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.sample import UNREADABLE
from degarble.registry import Level, check

MIN_SCALES = 8
MAX_SHARE = 0.97
MAX_EVEN = 0.9
"""Share of blocks with the most frequent scale: trained MXFP4 0.88 at most, weights drawn evenly 0.93 and more."""


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
    reach 448 (50 % in the worst tensor, which has few blocks), 34 to 82 % of MXFP4 blocks reach 6. If codes were made
    with exact scales, every block does. Bound: 97 % of the sampled blocks. Measured on 2,324 tensors of 12 checkpoints:
    docs/calibration.md.

    ## Why output turns to garbage
    The codes belong to scales that are up to twice smaller. Every block is off by a factor of its own between 1 and 2.
    A saver quantised with the exact scale and stored the rounded one, or an engine's rounding (UE8M0 for Blackwell)
    was applied to a file without quantising again.

    ## What you will see
    Token soup; perplexity 132,709 in a 135M model with all layers rounded up.

    ## How to tell it from its look-alikes
    Healthy UE8M0 and MX files have powers of two with ordinary codes. Ordinary fp32 scales are powers of two in at
    most 20 % of the blocks. A module with fewer than eight scales is not judged, nor one of FP4 whose scales are
    nearly all equal: weights drawn evenly from an interval have the same largest value in every block.

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
        is_reached = profile.scales.power_of_two == 1.0 and profile.reach > MAX_SHARE
        if count >= MIN_SCALES and is_reached and not _is_even(module):
            yield _finding(module, profile, count)


def _is_even(module: StoredModule) -> bool:
    """Whether nearly all blocks of FP4 have one scale. FP8 reaches its largest code in a 27th of an octave only."""
    scheme = module.form.scheme
    if scheme is None or scheme.num_bits != 4:
        return False
    try:
        _, counts = np.unique(module.scales(), return_counts=True)
    except UNREADABLE:
        return True
    return bool(counts.max() > MAX_EVEN * counts.sum())


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

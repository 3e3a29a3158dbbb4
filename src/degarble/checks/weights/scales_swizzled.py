"""WGT222: block scales that lie in a kernel's tile order under a logical shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.errors import EvidenceMissing
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix
from degarble.profile.module_profile import ModuleProfile
from degarble.registry import Level, check

MAX_DEVIATIONS = -6.0
"""Healthy -0.1 and more, random weights -2.5 and more."""
MAX_LAYER_SUM = -30.0
"""Of a layer's modules: healthy 124 and more, swizzled -123 and less."""


@check(
    "WGT222",
    confidence=Confidence.LIKELY,
    level=Level.CONTENT,
    symptom_of=(*DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING),
)
def scales_swizzled(modules: Modules, module_profiles: Mapping[str, ModuleProfile]) -> Iterator[Finding]:
    """Block scales lie in the tile order that a kernel wants, under the shape of the logical order.

    ## What it looks for
    Kernels for NVFP4 and MXFP4 read scales in tiles of 128 rows by 4 columns. Rows of a weight differ in size, and so
    do its columns: their means explain a part of the variance of log2 scale, and a larger part in the true order. The
    difference between the stored and the unswizzled order, in standard deviations of unordered scales, is -1.4 and more
    in healthy matrices and -3.9 and more in random ones. Reported below -6 (NVFP4 205 of 210, MXFP4 175 of 210
    planted), and for all modules of a layer whose sum is below -30 (60 of 60; healthy layers 77 and more). Measured on
    3,472 matrices of 21 checkpoints: docs/calibration.md.

    ## Why output turns to garbage
    Every block is multiplied with the scale of another block up to 127 rows away. Sizes stay plausible, so nothing
    overflows.

    ## What you will see
    Nonsense from the first token in engines that expect the logical order; the engine that wrote the file may be well.

    ## How to tell it from its look-alikes
    A padded, swizzled tensor has another shape, which QNT104 and QNT105 see. Matrices whose rows or scales are no whole
    tiles are not judged. v_proj and up_proj alone are near the bound; the sum over their layer is not.

    ## How to confirm
    Unswizzle one tensor (128 by 4 tiles) and compare it with the amax of each block of the source's weight.

    ## How to repair it
    Write the scales in logical order. A permutation loses nothing, but the evidence is statistical: not unattended.

    ## References
    sgl-project/sglang#38028, modular/modular#6600
    """
    scale_orders = orders_of_scales(module_profiles)
    if not scale_orders:
        raise EvidenceMissing("no block scales in whole tiles of 128 rows by 4 columns")
    sums: dict[tuple[int | None, int | None], float] = {}
    for name, value in scale_orders.items():
        key = (modules[name].layer, modules[name].expert)
        sums[key] = sums.get(key, 0.0) + value
    for name, value in scale_orders.items():
        module = modules[name]
        total = sums[module.layer, module.expert]
        is_layer = module.layer is not None and total < MAX_LAYER_SUM and value < 0
        if value < MAX_DEVIATIONS or is_layer:
            yield Finding(
                location=module.place("scale"),
                message=f"{(module.part('scale') or module.any_part).name}: the scales fit their rows and columns better "
                f"after unswizzling 128x4 tiles ({value:+.1f} standard deviations as stored, {total:+.1f} in the layer)",
                measured={
                    "deviations": round(value, 1),
                    "layer_sum": round(total, 1) if math.isfinite(total) else None,
                },
                bound={"deviations_min": MAX_DEVIATIONS, "layer_sum_min": MAX_LAYER_SUM},
                fix=Fix(id="unswizzle-scales", safe=False),
                fold="swizzled scales",
            )


def orders_of_scales(profiles: Mapping[str, ModuleProfile]) -> dict[str, float]:
    """Module -> deviations by which the stored order explains its scales better than the unswizzled one."""
    return {
        name: profile.scales.tiles
        for name, profile in profiles.items()
        if profile.scales is not None and profile.scales.tiles is not None
    }

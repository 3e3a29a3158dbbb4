"""WGT216: scales that are far larger or smaller than their neighbours'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.evidence.magnitudes import Magnitude, block_residual, row_excess
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.sample import UNREADABLE
from degarble.registry import Level, check

MAX_NATS = 1.79
"""A factor of six; healthy 1.36 at most."""
FIRST_LAYER_NATS = 5.5
"""A factor of 245 in the first layer: it reads the embedding, whose size is anything. Healthy 3.9 where norms are fused."""
MIN_Z, SURE_Z = 6.0, 8.0
SHARE_OF_SCALE = 0.7
"""Of a deviation that its scales must show, to be called theirs."""
MAX_OCTAVES, MAX_GRID_OCTAVES, MAX_ROW_OCTAVES = 4.5, 2.0, 3.6
MIN_GRID = 64
"""Rows of an FP8 block: grids of such blocks are smooth."""
EXPLAINED_BY = (
    "WGT201", "WGT202", "WGT206", "WGT207", "WGT208", "WGT210", "WGT212", "WGT214", "WGT215", "WGT221", "WGT222", "WGT223",
    "QNT101", *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING,
)  # fmt: skip


@check("WGT216", confidence=Confidence.LIKELY, level=Level.CONTENT, symptom_of=EXPLAINED_BY)
def scale_outlier(magnitudes: Sequence[Magnitude]) -> Iterator[Finding]:
    """The scales of a module, of one of its rows or of one block are many times larger or smaller than they should be.

    ## What it looks for
    Three sizes. A module: log of its rms against the median of the same module in the other layers, where its scales
    deviate in the same way, less what a fold explains: the norm before it, or the linear that undoes its scaling, is
    off by as much in the other direction. Healthy modules stay within 1.23 nats; reported above 1.79 (a factor of six)
    and 6 robust deviations, in the first layer above 5.5 (245). Below 8 deviations a warning. It needs four layers. A
    block: what is left of log2 scale and of log2 median |w| after rows and columns, both above 4.5 octaves (2 in grids
    of 128 by 128): factors of 64 and more are always found, 16 is within the healthy range (3.57 octaves). A row: rms
    and median |w| above the median row by 3.6 octaves, less what the same neuron or channel shows in its partners:
    healthy 2.82 octaves. Measured on 22,792 modules of 116 checkpoints: docs/calibration.md.

    ## Why output turns to garbage
    One such module dominates everything behind it; one row or block makes one channel of the hidden state far too
    large, and the norm behind it makes all others small.

    ## What you will see
    Nonsense, or repetition, from the first token; for a block often only a loss of quality.

    ## How to tell it from its look-alikes
    The first layer reads the embedding, whose size is anything: with fused norms its v_proj is healthy at a fiftieth.
    AWQ's folds made its k_proj 7.4 times as large, and the norm before it as much smaller. A few neurons of trained
    models are ten times as large as all others, in gate and up alike. Block scales alone reach 7 octaves in a healthy
    model, so the weights must agree. A plain weight that is too large is WGT229, a scale of zero WGT202, a reciprocal
    one WGT212. With fewer than four layers modules are not compared, blocks and rows are.

    ## How to confirm
    Dequantise the module and print its standard deviation beside those of the same module in other layers; for a block,
    the row around it.

    ## How to repair it
    Quantise the module again from the source. If the factor is a clear power of two, a cast or a unit was applied
    twice: find where, before changing numbers. Not safe unattended.

    ## References
    vllm-project/vllm#41021, sgl-project/sglang#33541
    """
    for one in magnitudes:
        if is_outlier(one) and is_of_scales(one):
            yield _module_finding(one)


@check("WGT216", confidence=Confidence.LIKELY, level=Level.CONTENT, symptom_of=EXPLAINED_BY)
def scale_outlier_inside(modules: Modules, module_profiles: Mapping[str, ModuleProfile]) -> Iterator[Finding]:
    """One block or one row of scales inside a module."""
    for name, profile in module_profiles.items():
        module, scales = modules.get(name), profile.scales
        if module is None or scales is None or module.kind not in ("linear", "router", "head"):
            continue
        bound = _block_bound(module)
        try:
            if scales.residual > bound and scales.residual_at is not None:
                row, group = scales.residual_at
                found = min(scales.residual, abs(block_residual(module, row, group)))
                if found > bound:
                    yield _inside(module, f"the block at row {row}, group {group}", found, bound, row, group)
                    continue
            if (
                scales.row_ratio > MAX_ROW_OCTAVES
                and scales.row_at is not None
                and scales.shape[0] == profile.num_outputs
            ):
                found = min(scales.row_ratio, row_excess(module, scales.row_at, modules))
                if found > MAX_ROW_OCTAVES:
                    yield _inside(module, f"row {scales.row_at}", found, MAX_ROW_OCTAVES, scales.row_at, None)
        except UNREADABLE:
            continue


def is_outlier(one: Magnitude) -> bool:
    """Whether the module is out of all proportion to its peers."""
    return abs(one.deviation) > max_nats(one) and one.z > MIN_Z


def max_nats(one: Magnitude) -> float:
    """The bound of a module's layer."""
    return MAX_NATS if one.module.layer else FIRST_LAYER_NATS


def is_of_scales(one: Magnitude) -> bool:
    """Whether the scales show most of the deviation."""
    found = one.scale_deviation
    return found is not None and found * one.deviation > 0 and abs(found) > SHARE_OF_SCALE * abs(one.deviation)


def _block_bound(module: StoredModule) -> float:
    scheme = module.form.scheme
    is_grid = scheme is not None and scheme.block_shape is not None and scheme.block_shape[0] >= MIN_GRID
    return MAX_GRID_OCTAVES if is_grid else MAX_OCTAVES


def _module_finding(one: Magnitude) -> Finding:
    factor = 2.718281828459045**one.deviation
    info = one.module.part("scale") or one.module.any_part
    return Finding(
        location=one.module.place("scale"),
        message=f"{info.name}: weights are {factor:.3g} times as large as in the other layers, and so are the scales "
        f"({one.z:.1f} robust deviations)",
        severity=Severity.ERROR if one.z > SURE_Z else Severity.WARNING,
        measured={"log_ratio": round(one.deviation, 3), "robust_z": round(one.z, 1), "factor": round(factor, 4)},
        bound={"log_ratio_max": max_nats(one), "robust_z_max": MIN_Z},
        fix=Fix(id="requantize-module", safe=False),
        fold="scales of a module",
    )


def _inside(module: StoredModule, what: str, octaves: float, bound: float, row: int, group: int | None) -> Finding:
    info = module.part("scale") or module.any_part
    return Finding(
        location=replace(module.place("scale"), row=row, group=group),
        message=f"{info.name}: {what} is a factor of {2**octaves:.0f} away from its surroundings, in its scale and in its "
        "weights",
        measured={"octaves": round(octaves, 2), "row": row, "group": group},
        bound={"octaves_max": bound},
        fix=Fix(id="requantize-module", safe=False),
        fold="scales inside",
    )

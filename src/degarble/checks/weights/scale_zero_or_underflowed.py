"""WGT202: a scale of zero, below zero or too small for its dtype, over codes that are not zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.checks.weights.scale_not_finite import value_place
from degarble.evidence.modules import Modules
from degarble.evidence.unit_values import ScaleGrid, unit_values
from degarble.finding import Finding, Fix, Severity
from degarble.formats.gguf_types import GGML_TYPE_BY_NAME
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

NOTHING = 2.0**-126
"""Below the smallest normal fp32 number a scale is zero to every kernel; E8M0's byte 0 is 2 ** -127."""
COARSE_HALF = 2.0**-20
"""fp16 has 16 steps below this: a scale there is up to 6 % wrong, one of 2 ** -24 up to half."""
MAX_LOOKED_AT = 4096
ROWS_AT_ONCE = 64
OUTPUTS_LOOKED_AT = 64
"""Under one row of scales, which may stand for all outputs."""
MANY_BYTES = 3
"""A GGUF block of zeros repeats one code: more distinct bytes than this are weights."""
SINGLES = ("global_scale", "input_scale", "nested_scale", "output_scale")
REQUANTIZE = Fix(id="requantize-module", safe=False)


class Lost(msgspec.Struct, frozen=True):
    """Scales with weights under them that they cannot carry."""

    places: list[tuple[int, int]]
    values: list[float]
    is_coarse: bool
    """Small rather than nothing."""
    is_outlier: bool
    """The codes reach their extremes, and other groups of the same outputs have ordinary scales."""


@check("WGT202", level=Level.CONTENT, symptom_of=("WGT201", *DAMAGED_FILE, *WRONG_READING))
def scale_zero_or_underflowed(
    modules: Modules, profiles: Mapping[str, TensorProfile], module_profiles: Mapping[str, ModuleProfile]
) -> Iterator[Finding]:
    """A scale is zero, negative or underflowed, while the codes under it are not zero.

    ## What it looks for
    All scales of every quantised module. Where one is zero, negative, or below the smallest normal fp32 number, its
    codes are looked at: if any of them stands for something else than zero, the weights are lost. An fp16 scale below
    2 ** -20, where fp16 has only 16 steps left, is a warning, and an error if the codes reach their extremes while
    other groups of the same output have scales 64 times as large. Global and activation scales must be positive. Exact:
    every scale is read.

    ## Why output turns to garbage
    A zero scale silences its group, row or matrix; a negative one turns the signs. Scales become zero when they are
    cast to fp16 after a clamp that was made on a copy, or when a weight sync writes defaults over them. An activation
    scale of zero divides by zero.

    ## What you will see
    Little, which is the danger: with one whole layer silenced, a 135M model still answers "Paris" (KL 0.12, below the
    noise of healthy 4-bit weights). Zero activation scales give NaN and one token repeated.

    ## How to tell it from its look-alikes
    Zero scales over codes of zero are legal: padding rows of the vocabulary, unused experts, the padded columns of AWQ
    GEMV files. Blocks of zeros with a scale of 1 are ModelOpt's habit. Negative scales are ordinary in GGUF blocks, in
    MLX, and where every group has its largest weight at code 0, as in auto-round's symmetric files. Rows that are zero
    by their codes are WGT205.

    ## How to confirm
    Dequantise the group of the finding: all zero, while the codes are not.

    ## How to repair it
    Quantise the module again and keep scales in fp32 until they are clamped. The scale cannot be told from the codes,
    so nothing is done unattended.

    ## References
    NVIDIA/TensorRT-LLM#2485, THUDM/slime#2256, sgl-project/sglang#27131
    """
    for module in modules.values():
        single = list(_single_scales(module, profiles))
        yield from single
        info, profile = module.part("scale"), module_profiles.get(module.name)
        if single:
            continue
        if info is not None and _is_suspicious(module, profile, profiles.get(info.name)):
            yield from _grouped(module, _may_be_negative(module, profile))
        elif info is None and profile is not None and profile.scales is not None and profile.scales.zeros:
            yield from _blocks(module)


def _single_scales(module: StoredModule, profiles: Mapping[str, TensorProfile]) -> Iterator[Finding]:
    for role in SINGLES:
        info = module.part(role)
        counts = profile.counts if info is not None and (profile := profiles.get(info.name)) is not None else None
        if info is None or counts is None or not (counts.zeros or counts.negatives):
            continue
        row, col = counts.first_zero or counts.first_negative or (0, 0)
        yield Finding(
            location=value_place(module, role, row, col),
            message=f"{info.name} is not positive at [{row}, {col}]: {counts.zeros} zeros, {counts.negatives} negative",
            measured={"zeros": counts.zeros, "negatives": counts.negatives},
            bound={"zeros": 0, "negatives": 0},
            fold=role,
            fix=REQUANTIZE,
        )


def _may_be_negative(module: StoredModule, profile: ModuleProfile | None) -> bool:
    """MLX's offset takes the sign back; llama.cpp and auto-round bring the largest value of a group to code 0 by it."""
    is_signed = profile is not None and profile.codes is not None and profile.codes.has_signed_scales
    return "offset" in module.form.roles or module.form.format == "gguf" or is_signed


def _is_suspicious(module: StoredModule, profile: ModuleProfile | None, stored: TensorProfile | None) -> bool:
    """Whether any scale is worth the look at its codes."""
    floor = COARSE_HALF if stored is not None and stored.dtype == "F16" else NOTHING
    if profile is not None and profile.scales is not None:
        scales = profile.scales
        lost = scales.zeros or (scales.negatives and not _may_be_negative(module, profile))
        return bool(lost) or (scales.min_positive is not None and scales.min_positive < floor)
    counts = stored.counts if stored is not None else None
    return counts is not None and bool(counts.zeros or counts.negatives) and stored is not None and stored.dtype != "U8"


def _grouped(module: StoredModule, is_signed: bool) -> Iterator[Finding]:
    info = module.part("scale")
    try:
        grid = ScaleGrid(module)
        found = [lost for is_coarse in (False, True) if (lost := _lost(module, grid, is_coarse, is_signed)) is not None]
    except (ValueError, KeyError):
        return
    for lost in found:
        row, col = grid.stored(*lost.places[0])
        what = "too small for fp16" if lost.is_coarse else "zero" if lost.values[0] >= 0 else "negative"
        is_warning = lost.is_coarse and not lost.is_outlier
        name = info.name if info is not None else module.name
        yield Finding(
            location=value_place(module, "scale", row, col),
            message=f"{name} is {what} ({lost.values[0]:.3g}) at [{row}, {col}] and {len(lost.places) - 1} other "
            "places, and the codes there are not zero",
            severity=Severity.WARNING if is_warning else None,
            measured={"scale": lost.values[0], "count": len(lost.places)},
            bound={"scale_min": COARSE_HALF if lost.is_coarse else NOTHING},
            fold=what,
            fix=REQUANTIZE,
        )


def _lost(module: StoredModule, grid: ScaleGrid, is_coarse: bool, is_signed: bool) -> Lost | None:
    """Places whose codes are not zero."""
    scales = grid.scales
    stored = module.part("scale")
    if is_coarse:
        if stored is None or stored.dtype != "F16":
            return None
        flags = (scales >= NOTHING) & (scales < COARSE_HALF)
    else:
        flags = np.abs(scales) < NOTHING if is_signed else scales < NOTHING
    places = np.argwhere(flags)
    places = places[:: max(1, len(places) // MAX_LOOKED_AT)]
    bad, is_outlier = [], False
    middles = np.median(scales, axis=1) if len(places) else scales[:, 0]
    for row, values in _rows_in_units(module, grid, np.unique(places[:, 0]).tolist()):
        for group in places[places[:, 0] == row, 1].tolist():
            under = values[:, grid.inputs(group)]
            if under.any():
                bad.append((row, group))
                is_outlier |= _reaches(under, module) and bool(middles[row] > 64 * scales[row, group])
    if not bad:
        return None
    return Lost(bad, [float(scales[place]) for place in bad], is_coarse, is_outlier)


def _rows_in_units(module: StoredModule, grid: ScaleGrid, rows: Sequence[int]) -> Iterator[tuple[int, Array]]:
    """[outputs, in] magnitudes in units of one scale under each row of scales, many rows at a read."""
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE]
        outputs = [list(grid.outputs(row))[:OUTPUTS_LOOKED_AT] for row in some]
        values = np.abs(unit_values(module, [output for part in outputs for output in part]))
        ends = np.cumsum([len(part) for part in outputs]).tolist()
        yield from zip(some, np.split(values, ends[:-1]), strict=True)


def _reaches(values: Array, module: StoredModule) -> bool:
    """Whether codes come within one step of the largest the width has."""
    scheme = module.form.scheme
    bits = scheme.num_bits if scheme is not None and scheme.type == "int" else None
    return bits is not None and float(values.max()) >= (1 << (bits - 1)) - 1


def _blocks(module: StoredModule) -> Iterator[Finding]:
    """GGUF: `d` is zero in a block whose codes differ."""
    payload = module.payload
    kind = GGML_TYPE_BY_NAME.get(payload.dtype.removeprefix("GGUF:")) if payload is not None else None
    if payload is None or kind is None:
        return
    scales = module.scales()
    blocks = module.reader.raw(payload).reshape(-1, kind.type_size)
    zero = np.flatnonzero(scales.reshape(-1) == 0)
    bad = [index for index in zero[:MAX_LOOKED_AT].tolist() if len(np.unique(blocks[index])) > MANY_BYTES]
    if not bad:
        return
    row, block = divmod(bad[0], scales.shape[-1])
    yield Finding(
        location=value_place(module, PAYLOAD, row, block * kind.block_size),
        message=f"{payload.name}: the scale of block {block} in row {row} is zero, and {len(bad) - 1} others, while "
        "their codes are not all one",
        measured={"count": len(bad)},
        bound={"count": 0},
        fold="zero",
        fix=REQUANTIZE,
    )

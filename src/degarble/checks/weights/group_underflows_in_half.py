"""WGT223: weights that become zero when they are cast to fp16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from degarble.checkpoint.tensor_data import DTYPES
from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.evidence.unit_values import ScaleGrid, unit_values
from degarble.finding import Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.float_bits import FloatBits, float_bits
from degarble.profile.raw import DETAILED_BYTES
from degarble.profile.tensor_profile import RowTops, TensorProfile
from degarble.registry import Level, check

TO_ZERO = 2.0**-25
"""Half of fp16's smallest number: this and everything below rounds to zero."""
WIDE = ("BF16", "F32", "F64")
MAX_LOOKED_AT = 256
KEEP_WIDE = Fix(id="keep-scales-in-bfloat16", safe=False)


@check(
    "WGT223",
    level=Level.CONTENT,
    severity=Severity.WARNING,
    symptom_of=("WGT201", "WGT202", *DAMAGED_FILE, *WRONG_READING),
)
def group_underflows_in_half(modules: Modules, profiles: Mapping[str, TensorProfile]) -> Iterator[Finding]:
    """A whole row or group of weights becomes zero if it is cast to fp16.

    ## What it looks for
    Rows of plain bf16 and fp32 linears whose largest weight is above zero and at most 2 ** -25, the largest number
    that fp16 rounds to zero; and group scales of integer weights, stored in bf16 or fp32, of that size over codes that
    are not zero. All bytes are read. Exact; healthy: six forms of one trained 30-layer model and 33 small checkpoints
    have neither.

    ## Why output turns to garbage
    Most 4-bit kernels compute in fp16 and cast scales first. The group is silent there, and alive in bf16: the same
    file gives two answers. It stems from folds with extreme factors and from scales that were made in another range.

    ## What you will see
    Differences between engines, or between `--dtype float16` and `bfloat16`, without any warning.

    ## How to tell it from its look-alikes
    Scales that are zero in the file are WGT202. Rows that training has driven to about 1e-30 are harmless: they are
    near zero in bf16 too; compare the row with its neighbours. GGUF keeps such weights in fp32 and is not judged, nor
    are FP8 scales, which engines keep in fp32.

    ## How to confirm
    Cast the row or scale to fp16 and look for values that are not zero.

    ## How to repair it
    Serve in bf16, or quantise again with the fold's factors bounded. Nothing is done unattended: raising a scale
    changes the weights.

    ## References
    NVIDIA/TensorRT-LLM#2485, vllm-project/llm-compressor#2630
    """
    for module in modules.values():
        if module.kind != "linear" or module.payload is None:
            continue
        if module.form.format == "plain" and module.payload.dtype in WIDE:
            yield from _rows(module, profiles.get(module.payload.name))
        elif module.form.scheme is not None and module.form.scheme.type == "int":
            yield from _scales(module, profiles)


def _rows(module: StoredModule, profile: TensorProfile | None) -> Iterator[Finding]:
    """Rows by their largest magnitude, which the pass over the bytes kept."""
    bits = float_bits(profile.dtype) if profile is not None else None
    if profile is None or bits is None or len(profile.shape) < 2:
        return
    pattern = int(np.array([TO_ZERO], DTYPES[bits.dtype]).view(bits.unsigned)[0])
    limit = bits.twice(pattern)
    found: list[int] = []
    for first, tops in profile.row_tops or _small(module, bits):
        found += (np.flatnonzero((tops > 0) & (tops <= limit)) + first).tolist()
    if found:
        yield Finding(
            location=replace(module.place(), row=found[0]),
            message=f"{profile.name}: {len(found)} of {profile.num_rows} rows hold weights that all become zero in fp16"
            f", the first is {found[0]}",
            measured={"rows": len(found), "first": found[0]},
            bound={"absmax_min": TO_ZERO},
            fold="rows",
            fix=KEEP_WIDE,
        )


def _small(module: StoredModule, bits: FloatBits) -> RowTops:
    """The pass keeps no rows of payloads below its limit for close looks."""
    info = module.any_part
    if info.nbytes > DETAILED_BYTES:
        return ()
    patterns = module.reader.raw(info).view(bits.unsigned).reshape(-1, info.shape[-1])
    return ((0, bits.doubled(patterns).max(axis=1)),)


def _scales(module: StoredModule, profiles: Mapping[str, TensorProfile]) -> Iterator[Finding]:
    info = module.part("scale")
    profile = profiles.get(info.name) if info is not None else None
    counts = profile.counts if profile is not None else None
    is_small = counts is not None and counts.min_positive is not None and counts.min_positive <= TO_ZERO
    if info is None or info.dtype not in WIDE or not is_small:
        return
    try:
        grid = ScaleGrid(module)
        places = np.argwhere((grid.scales > 0) & (grid.scales <= TO_ZERO))
        bad = [(row, group) for row, group in places[:MAX_LOOKED_AT].tolist() if _is_alive(module, grid, row, group)]
    except (ValueError, KeyError):
        return
    if bad:
        row, col = grid.stored(*bad[0])
        yield Finding(
            location=replace(module.place("scale"), row=row, col=col),
            message=f"{info.name}: {len(places)} scales of at most {TO_ZERO:.2g} are zero in fp16, and the codes under "
            f"the one at [{row}, {col}] are not",
            measured={"scales": len(places), "smallest": float(grid.scales[bad[0]])},
            bound={"scale_min": TO_ZERO},
            fold="scales",
            fix=KEEP_WIDE,
        )


def _is_alive(module: StoredModule, grid: ScaleGrid, row: int, group: int) -> bool:
    values = unit_values(module, list(grid.outputs(row))[:16])
    return bool(values[:, grid.inputs(group)].any())

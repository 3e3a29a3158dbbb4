"""FP4 and FP8: how many groups, blocks or rows reach the format's largest magnitude.

A quantiser that divides by amax / largest brings the largest value of every group to the largest code. With scales
rounded to powers of two before that, only some groups reach it; with scales rounded afterwards, all still do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import shape_of
from degarble.formats.float8 import FLOAT8, largest
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.formats.slicing import group_size, num_outputs, stack_outputs

MAX_BLOCK_ROWS = 2
"""Rows of blocks that are read of a block-scaled weight."""
FP4_MAGNITUDE, FP4_LARGEST = 7, 7


def reach(modules: Sequence[StoredModule], stacked: StoredModule) -> Sequence[float | None]:
    """One share a module; None for integers and plain weights."""
    scheme, payload = modules[0].form.scheme, modules[0].payload
    if scheme is None or scheme.type != "float" or payload is None or modules[0].form.format == "gguf":
        return [None] * len(modules)
    if scheme.block_shape is not None:
        return [_block_reach(module, scheme.block_shape) for module in modules]
    codes = stacked.codes()
    size = min(group_size(stacked), codes.shape[-1])
    groups = codes.shape[-1] // size
    grouped = codes[..., : groups * size].reshape(len(modules), -1, size)
    top = _top(grouped, payload.dtype)
    return [float(one) for one in top.mean(axis=1)]


def is_by_block(module: StoredModule) -> bool:
    """Whether `reach` takes the module's own rows of blocks, whatever outputs it is given."""
    return module.form.scheme is not None and module.form.scheme.block_shape is not None


def _top(codes: Array, dtype: str) -> Array:
    """Whether the largest magnitude of the last axis is the format's largest."""
    if dtype not in FLOAT8:
        return np.asarray((codes & FP4_MAGNITUDE).max(axis=-1) == FP4_LARGEST)
    return np.asarray((codes & 0x7F).max(axis=-1) >= _largest_code(dtype))


def _largest_code(dtype: str) -> int:
    from degarble.formats.float8 import encode

    return int(encode(np.array([largest(dtype)], np.float32), dtype)[0])


def _block_reach(module: StoredModule, block: tuple[int, int]) -> float | None:
    """Over whole blocks: the first rows of blocks and the middle ones."""
    height, width = block
    rows, inputs = num_outputs(module), shape_of(module)[-1]
    payload = module.part(PAYLOAD)
    if rows < height or inputs < width or payload is None:
        return None
    starts = sorted({0, rows // height // 2})[:MAX_BLOCK_ROWS]
    codes = stack_outputs([module], [(at * height, (at + 1) * height) for at in starts], roles=(PAYLOAD,)).codes()
    columns = inputs // width
    down = (codes[:, : columns * width] & 0x7F).reshape(len(starts), height, -1).max(axis=1)
    return float((down.reshape(len(starts), columns, width).max(axis=2) >= _largest_code(payload.dtype)).mean())

"""What weights would be if every scale were one: which groups hold anything but zeros, whatever the format."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import DTYPES, Array, TensorReader
from degarble.formats.agreement import shape_of
from degarble.formats.e8m0 import BIAS
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import can_slice, num_outputs, quantum, stack_outputs

SCALES = ("scale", "global_scale", "nested_scale")


class _OnesReader(TensorReader):
    """The module's own bytes, with ones in place of its scales."""

    def __init__(self, module: StoredModule) -> None:
        self._reader = module.reader
        scales = [info for role in SCALES if (info := module.part(role)) is not None]
        self._ones = {info.name: _ones(info) for info in scales}

    def raw(self, info: TensorInfo) -> Array:
        """See TensorReader."""
        return self._ones[info.name] if info.name in self._ones else self._reader.raw(info)


def _ones(info: TensorInfo) -> Array:
    dtype = DTYPES[info.dtype]
    one = BIAS if dtype == np.uint8 else 1
    return np.full(info.nbytes // dtype.itemsize, one, dtype).view(np.uint8)


def unit_values(module: StoredModule, outputs: Sequence[int]) -> Array:
    """[outputs, in] float32 in units of one scale. Raises ValueError where the format cannot tell."""
    if not can_slice(module):
        whole = msgspec.structs.replace(module, reader=_OnesReader(module)).dequantize()
        return np.asarray(whole.reshape(-1, whole.shape[-1])[list(outputs)])
    step, total = quantum(module), num_outputs(module)
    blocks = sorted({output // step for output in outputs})
    runs = [(block * step, min((block + 1) * step, total)) for block in blocks]
    some = stack_outputs([module], runs)
    values = msgspec.structs.replace(some, reader=_OnesReader(some)).dequantize()
    at = {row: index for index, row in enumerate(row for start, stop in runs for row in range(start, stop))}
    return np.asarray(values[[at[output] for output in outputs]])


class ScaleGrid:
    """Which weights each scale of a module stands for, and where it is stored."""

    def __init__(self, module: StoredModule) -> None:
        self._module = module
        scales = module.scales()
        self.scales = scales.reshape(-1, scales.shape[-1])
        """[rows, groups] float32, as `StoredModule.scales` gives them."""
        self._inputs: dict[int, Array] = {}

    @cached_property
    def _group_index(self) -> Array | None:
        return self._module.group_index()

    def outputs(self, row: int) -> range:
        """Outputs under a row of scales: one, a block's height, or all."""
        rows, total, scheme = len(self.scales), num_outputs(self._module), self._module.form.scheme
        if rows >= total:
            return range(row, row + 1)
        height = scheme.block_shape[0] if scheme is not None and scheme.block_shape and rows > 1 else -(-total // rows)
        return range(row * height, min((row + 1) * height, total))

    def inputs(self, group: int) -> Array:
        """[in] whether an input belongs to a group."""
        if group not in self._inputs:
            self._inputs[group] = self._inputs_of(group)
        return self._inputs[group]

    def _inputs_of(self, group: int) -> Array:
        columns, groups = shape_of(self._module)[-1], self.scales.shape[1]
        if groups == 1:
            return np.ones(columns, np.bool_)
        scheme, index = self._module.form.scheme, self._group_index
        if index is not None:
            return np.asarray(index == group)
        width = scheme.block_shape[1] if scheme is not None and scheme.block_shape else -(-columns // groups)
        return np.asarray(np.arange(columns) // width == group)

    def stored(self, row: int, group: int) -> tuple[int, int]:
        """Row and column in the stored tensor."""
        info, axes = self._module.part("scale"), self._module.format.axes.get("scale")
        if info is None:
            return row, group
        if len(info.shape) < 2:
            return 0, min(row * self.scales.shape[1] + group, max(info.shape, default=1) - 1)
        if axes is not None and axes[1] is not None and axes[1][0] < axes[0][0]:
            return group, row
        return row, group

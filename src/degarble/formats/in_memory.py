"""Modules whose parts are arrays in memory: what cutting a module gives, and every format reads like a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array, TensorReader
from degarble.formats.interface import StoredModule


class ArrayReader(TensorReader):
    """Arrays by tensor name, read like a file."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

    def raw(self, info: TensorInfo) -> Array:
        """The bytes of one array."""
        return np.asarray(self._arrays[info.name].reshape(-1).view(np.uint8))


def with_arrays(module: StoredModule, arrays: Mapping[str, tuple[str, Array]], shape: tuple[int, ...]) -> StoredModule:
    """The module with only these parts: role -> (dtype, array), and another logical shape."""
    suffixes = {role: module.form.roles[role] for role in arrays}
    parts = {
        suffixes[role]: TensorInfo(role, dtype, array.shape, module.any_part.file, 0, array.nbytes)
        for role, (dtype, array) in arrays.items()
    }
    form = replace(module.form, shape=shape, roles=suffixes)
    reader = ArrayReader({role: array for role, (_, array) in arrays.items()})
    return msgspec.structs.replace(module, parts=parts, form=form, reader=reader)

"""Checkpoints in memory: arrays by tensor name become one file of a Source."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from degarble.checkpoint.interface import Source, TensorInfo
from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.executor import ThreadExecutor
from degarble.profile.lines import Chunk
from degarble.profile.raw import profile_tensors
from degarble.profile.tensor_profile import TensorProfile
from tests.memory_source import MemorySource

NAMES = {dtype: name for name, dtype in DTYPES.items()}


def checkpoint(
    arrays: Mapping[str, Array], dtypes: Mapping[str, str] | None = None
) -> tuple[Source, dict[str, TensorInfo]]:
    """One file `w` with the arrays behind each other. `dtypes` overrides names, shapes stay."""
    infos: dict[str, TensorInfo] = {}
    data = b"header"
    for name, array in arrays.items():
        dtype = (dtypes or {}).get(name) or NAMES[array.dtype]
        infos[name] = TensorInfo(name, dtype, array.shape, "w", len(data), array.nbytes)
        data += np.ascontiguousarray(array).tobytes()
    return MemorySource({"w": data}), infos


def profile_one(array: Array, *, detailed: bool = True, threads: int = 1) -> TensorProfile:
    """The profile of one array through the whole pass."""
    source, infos = checkpoint({"t": array})
    result = profile_tensors(source, infos, ThreadExecutor(threads), is_payload=lambda _: not detailed)
    assert not result.unread
    return result.profiles["t"]


def chunk_of(info: TensorInfo, raw: Array) -> Chunk:
    """One chunk with the whole tensor, a line a row."""
    rows = int(np.prod(info.shape[:-1], dtype=int))
    return Chunk([info], raw.reshape(1, rows, -1), 0, 1, True)

"""From a TensorInfo to an array: memory-mapped where the source is local, read otherwise."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from degarble.checkpoint.interface import Source, TensorInfo
from degarble.errors import MalformedFile

Array = NDArray[Any]

DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "I16": np.dtype("<i2"),
    "U16": np.dtype("<u2"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
"""safetensors dtype -> numpy. Sub-byte types have no numpy form and are read as bytes by their format."""


MAX_RESIDENT_BYTES = 96 << 20
"""Handed out before pages are given back."""


class TensorReader:
    """Gives arrays of stored tensors over one memory map per file, and gives pages back as it goes.

    Pages of a map count as the process's memory once touched, with 64 KB around them. Every so many bytes handed out,
    all of them are returned: arrays stay valid, and what is read again comes from the page cache. Threads may share one.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._maps: dict[str | Path, mmap.mmap] = {}
        self._touched: set[str | Path] = set()
        """Maps of which something was handed out since pages were last given back."""
        self._handed = 0

    def raw(self, info: TensorInfo) -> Array:
        """The stored bytes, [nbytes] uint8. Raises MalformedFile if the file is too short."""
        data = self._bytes(info)
        if data.size != info.nbytes:
            short = info.nbytes - data.size
            raise MalformedFile(info.file, info.name, f"{info.nbytes} bytes", f"{data.size}", missing_bytes=short)
        return data

    def read(self, info: TensorInfo) -> Array:
        """The tensor in its own dtype and shape; never a copy for local files."""
        dtype = DTYPES.get(info.dtype)
        if dtype is None:
            raise MalformedFile(info.file, info.name, "a dtype that numpy can hold", info.dtype)
        return self.raw(info).view(dtype).reshape(info.shape)

    def _bytes(self, info: TensorInfo) -> Array:
        found = self._locate(info) if info.nbytes else None
        if found is None:
            return np.frombuffer(self._source.read(info.file, info.start, info.nbytes), np.uint8)
        key, start = found
        self._touched.add(key)
        self._handed += info.nbytes
        if self._handed > MAX_RESIDENT_BYTES:
            self._give_back()
        return np.frombuffer(self._maps[key], np.uint8)[start : start + info.nbytes]

    def _locate(self, info: TensorInfo) -> tuple[str | Path, int] | None:
        """The map and the place where the bytes lie in one piece in a local file that is not empty."""
        if hasattr(self._source, "locate"):
            found: tuple[Path, int] | None = self._source.locate(info.file, info.start, info.nbytes)
            if found is not None:
                self._map(found[0], found[0])
            return found
        if info.file not in self._maps:  # the source is asked for a path once a file: that costs more than a small read
            path = getattr(self._source, "local_path", None)
            if path is None or self._source.files()[info.file] == 0:
                return None
            self._map(info.file, path(info.file))
        return info.file, info.start

    def _map(self, key: str | Path, path: Path) -> None:
        if key not in self._maps:
            with open(path, "rb") as stream:
                self._maps[key] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def _give_back(self) -> None:
        self._handed = 0
        touched, self._touched = self._touched, set()
        if hasattr(mmap, "MADV_DONTNEED"):
            for key in tuple(touched):
                self._maps[key].madvise(mmap.MADV_DONTNEED)

"""Profiles kept between runs: a file that has not changed need not be read again.

The key is a digest of every file's name, size, modification time and inode, of all headers, and of how the profile was
taken. A cache that cannot be read or does not fit is ignored; writing is atomic and its failure no error.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from degarble.checkpoint.interface import Source, TensorInfo
from degarble.errors import TargetError

VERSION = 2
"""Raised whenever a profile means something else than before."""

Value = TypeVar("Value")


def cache_key(source: Source, tensors: Mapping[str, TensorInfo], manner: str) -> str | None:
    """Digest of what a profile depends on; None for sources without files of their own."""
    path = getattr(source, "local_path", None)
    if path is None:
        return None
    digest = blake2b(f"{VERSION} {manner}".encode(), digest_size=20)
    try:
        for file in sorted({info.file for info in tensors.values()}):
            status = os.stat(path(file))
            digest.update(repr((file, status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)).encode())
    except (OSError, TargetError):
        return None
    for info in tensors.values():
        digest.update(repr((info.name, info.dtype, info.shape, info.file, info.start, info.nbytes)).encode())
    return digest.hexdigest()


def load(folder: str, key: str, kind: type[Value]) -> Value | None:
    """What was stored under the key; None if there is nothing usable."""
    try:
        data = (Path(folder) / f"{key}.profile").read_bytes()
        return msgspec.msgpack.decode(data, type=kind, dec_hook=_decoded)
    except (OSError, msgspec.MsgspecError, ValueError, TypeError):
        return None


def store(folder: str, key: str, value: Any) -> None:
    """Write to a file of its own first, then rename it: a reader never sees half a profile."""
    try:
        os.makedirs(folder, exist_ok=True)
        data = msgspec.msgpack.encode(value, enc_hook=_encoded)
        handle, partial = tempfile.mkstemp(dir=folder, suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            os.replace(partial, Path(folder) / f"{key}.profile")
        except OSError:
            os.unlink(partial)
    except OSError:
        pass


def _encoded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value)} is no part of a profile")


def _decoded(kind: Any, value: Any) -> Any:
    dtype, data = value
    return np.frombuffer(data, np.dtype(dtype))

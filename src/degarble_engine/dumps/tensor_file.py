"""One tensor from a file that nobody vouches for: `.npy` without objects, `.pt` without code, `.safetensors`.

A `.pt` is a zip of raw values beside a pickle. The pickle is read by torch's restricted reader, which makes tensors and
plain containers and calls nothing else; a compressed zip, or a tensor that claims more values than its file has bytes
(a stride of 0), would fill the memory and is refused.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from degarble.errors import MalformedFile

ENDINGS = (".npy", ".pt", ".safetensors")
MAX_PICKLE = 1 << 24
MAX_BYTES = 1 << 34
VALUE = "value"
"""Where SGLang's dumper puts the tensor, beside `meta`."""


def keys_of(file: Path) -> Iterator[str]:
    """Names in a safetensors file. Raises MalformedFile."""
    from safetensors import safe_open

    try:
        with safe_open(file, "pt") as stored:
            yield from stored.keys()
    except Exception as error:  # the library raises its own and bare ones
        raise MalformedFile(file.name, "header", "a safetensors file", _short(error)) from None


def read_tensor(file: Path, key: str | None = None) -> Tensor:
    """The tensor, on the CPU, in its own dtype. Raises MalformedFile."""
    try:
        size = file.stat().st_size
    except OSError as error:
        raise MalformedFile(file.name, "file", "a file that can be read", error.strerror or str(error)) from None
    if size > MAX_BYTES:
        raise MalformedFile(file.name, "size", f"at most {MAX_BYTES:,} bytes", f"{size:,}")
    if file.suffix == ".npy":
        return _npy(file)
    if file.suffix == ".safetensors":
        return _safetensors(file, key)
    return _pt(file, size)


def _npy(file: Path) -> Tensor:
    try:
        with np.errstate(over="ignore"):  # sizes that wrap are refused further in
            array = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy raises what its parser of Python literals raises
        raise MalformedFile(file.name, "header", "a .npy array of numbers, no pickle", _short(error)) from None
    if array.dtype.kind not in "fiub":
        raise MalformedFile(
            file.name, "dtype", "floats or integers (bf16 has no .npy form: save it as float32)", str(array.dtype)
        )
    plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    return torch.from_numpy(plain.copy())


def _safetensors(file: Path, key: str | None) -> Tensor:
    from safetensors import safe_open

    try:
        with safe_open(file, "pt") as stored:
            found: Tensor = stored.get_tensor(key)
    except Exception as error:
        raise MalformedFile(file.name, str(key), "a stored tensor", _short(error)) from None
    return found


def _pt(file: Path, size: int) -> Tensor:
    _require_plain_zip(file)
    try:
        found: Any = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # whatever a damaged pickle makes torch raise
        raise MalformedFile(file.name, "pickle", "a tensor and plain values", _short(error)) from None
    if isinstance(found, dict):
        found = found.get(VALUE)
    if not isinstance(found, Tensor) or found.layout is not torch.strided or found.is_quantized:
        raise MalformedFile(file.name, VALUE, "a dense tensor", type(found).__name__)
    if found.device.type != "cpu" or found.numel() * found.element_size() > size:
        raise MalformedFile(file.name, "shape", f"values for {size:,} bytes", f"shape {list(found.shape)}")
    return found.detach()


def _require_plain_zip(file: Path) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise MalformedFile(file.name, "container", "the zip of torch.save", _short(error)) from None
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise MalformedFile(file.name, entry.filename[:80], "values as they are", "a compressed entry")
        if entry.filename.endswith(".pkl") and entry.file_size > MAX_PICKLE:
            raise MalformedFile(file.name, entry.filename[:80], f"at most {MAX_PICKLE:,} bytes", f"{entry.file_size:,}")


def _short(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"

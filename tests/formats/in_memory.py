"""Modules that live in memory, and modules of the golden checkpoints with their tools' own values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np

from degarble.checkpoint.folder import LocalFolder
from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.safetensors import read_header
from degarble.checkpoint.tensor_data import DTYPES, Array, TensorReader
from degarble.formats.detect import detect
from degarble.formats.interface import StoredModule
from degarble.formats.scheme import Scheme
from degarble.formats.split import group_by_module

TOOL_DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class MemoryReader(TensorReader):
    """Arrays by tensor name, read like a file."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = dict(arrays)

    def raw(self, info: TensorInfo) -> Array:
        """The bytes of one array."""
        return np.frombuffer(np.ascontiguousarray(self.arrays[info.name]).tobytes(), np.uint8)


def info_of(name: str, dtype: str, shape: tuple[int, ...], nbytes: int = 0) -> TensorInfo:
    """A header entry without bytes behind it."""
    return TensorInfo(name, dtype, shape, "model.safetensors", 0, nbytes)


def headers(**parts: tuple[str, tuple[int, ...]]) -> dict[str, TensorInfo]:
    """Parts of a module `m` from suffix=(dtype, shape); two underscores stand for a dot."""
    named = {suffix.replace("__", "."): spec for suffix, spec in parts.items()}
    return {suffix: info_of(f"m.{suffix}", dtype, shape) for suffix, (dtype, shape) in named.items()}


def module_of(
    parts: Mapping[str, Array],
    declared: Scheme | None = None,
    expected: tuple[int, ...] | None = None,
    infos: Mapping[str, TensorInfo] | None = None,
) -> StoredModule:
    """A module `m` whose parts are these arrays (suffix -> array), recognised by its headers."""
    arrays = {f"m{suffix}" if suffix.startswith("_b") else f"m.{suffix}": array for suffix, array in parts.items()}
    found = {
        suffix: info_of(name, NAMES[np.dtype(array.dtype)], array.shape, array.nbytes)
        for (suffix, array), name in zip(parts.items(), arrays, strict=True)
    }
    return _module("m", {**found, **(infos or {})}, declared, expected, MemoryReader(arrays))


def _module(
    name: str, parts: Mapping[str, TensorInfo], declared: Scheme | None, expected: Any, reader: TensorReader
) -> StoredModule:
    fmt, form = detect(parts, declared, expected)
    return StoredModule(
        name=name,
        canonical=None,
        template=name,
        layer=None,
        expert=None,
        kind="linear",
        parts=parts,
        form=form,
        format=fmt,
        reader=reader,
    )


def rewritten(module: StoredModule, **new: Array) -> StoredModule:
    """The module after `replace`, read back from what was written."""
    stored = module.replace(**new)
    arrays = {info.name: module.reader.raw(info).view(np.uint8) for info in module.parts.values()}
    for name, array in stored.items():
        info = next(info for info in module.parts.values() if info.name == name)
        raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        assert raw.size == info.nbytes
        assert info.dtype.startswith("GGUF:") or (array.shape == info.shape and NAMES[array.dtype] == info.dtype)
        arrays[name] = raw
    return msgspec.structs.replace(module, reader=MemoryReader(arrays))


def golden_modules(folder: Path, declared: Scheme | None, expected: bool = False) -> Iterator[StoredModule]:
    """Every module of a checkpoint in one file. `expected`: give each its shape from the oracle."""
    source = LocalFolder(folder)
    reader = TensorReader(source)
    shapes = {name: tuple(entry["shape"]) for name, entry in oracle(folder).items()}
    for name, parts in group_by_module(read_header(source, "model.safetensors").tensors).items():
        yield _module(name, parts, declared, shapes.get(f"{name}.weight") if expected else None, reader)


def oracle(folder: Path) -> dict[str, dict[str, Any]]:
    """What the tool itself dequantised: name -> shape, tool_dtype, sha256_fp32."""
    tensors: dict[str, dict[str, Any]] = json.loads((folder / "oracle.json").read_bytes())["tensors"]
    return tensors


def agrees(module: StoredModule, entry: Mapping[str, Any]) -> bool:
    """Whether our values, cast to the tool's dtype, have the tool's hash."""
    ours = module.dequantize()
    assert ours.dtype == np.float32
    for dtype in (np.float32, TOOL_DTYPES[entry["tool_dtype"]]):
        cast = np.ascontiguousarray(ours.astype(dtype).astype("<f4"))
        if hashlib.sha256(cast.tobytes()).hexdigest() == entry["sha256_fp32"]:
            return bool(list(ours.shape) == entry["shape"])
    return False


def check_golden(folder: Path, declared: Scheme | None, name: str, *, expected: bool = False) -> int:
    """Every quantised module is this format, whole, uncontradicted, and bit-exact. Returns how many there were."""
    count, values = 0, oracle(folder)
    for module in golden_modules(folder, declared, expected):
        if not module.form.is_quantized:
            continue
        form = module.form
        assert (form.format, form.missing, form.orphaned, form.contradictions) == (name, (), (), ()), module.name
        assert agrees(module, values[f"{module.name}.weight"]), module.name
        count += 1
    return count

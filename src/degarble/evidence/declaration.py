"""Evidence from the quantisation config: which method it names, read by that method's own file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import degarble.methods as package
from degarble.checkpoint.json_file import JsonFile
from degarble.errors import EvidenceMissing, EvidenceUnjudged, MalformedFile
from degarble.evidence.model import TEXT_KEYS
from degarble.evidence.store import Coverage, provides
from degarble.methods.interface import Declaration, Method
from degarble.registry import walk

SIDECARS = (
    ("hf_quant_config.json", "modelopt"),
    ("quantize_config.json", "gptq"),
    ("quant_config.json", "awq"),
    ("quanto_qmap.json", "quanto"),
    ("quant_model_description.json", "ascend"),
)
"""Files that carry the config when config.json does not, and the method each belongs to unless it names one."""


@cache
def methods() -> dict[str, Method]:
    """`quant_method` value (lower case) -> the file that reads it."""
    found: dict[str, Method] = {}
    for module in walk(package):
        for member in vars(module).values():
            is_method = isinstance(member, type) and issubclass(member, Method) and "names" in vars(member)
            if is_method and member.__module__ == module.__name__:
                found |= dict.fromkeys(member.names, member())
    return found


@provides("declaration")
def declaration(json_files: Mapping[str, JsonFile], source_kind: str, coverage: Coverage) -> Declaration:
    """The quantisation config that governs the weights: config.json's own, else a sidecar's."""
    for file, _ in SIDECARS:
        if file in json_files and json_files[file].problem is not None:
            coverage.add(file, str(json_files[file].problem))
    found = quantization_objects(json_files)
    if not found:
        raise EvidenceMissing("no quantization_config" if source_kind != "gguf" else "GGUF files carry none")
    file, key, raw, name = found[0]
    reader = methods().get(name)
    if reader is None:
        raise EvidenceUnjudged(f"{file}: unknown quant_method {name!r}")
    return reader.declare(raw, file=file, key=key)


@provides("source_kind")
def source_kind(source: Any) -> str:
    """hf-folder, safetensors, gguf or hub."""
    return str(source.kind)


def quantization_objects(json_files: Mapping[str, JsonFile]) -> list[tuple[str, str, Mapping[str, Any], str]]:
    """(file, dotted key, object, method name) of every quantisation config there is, the governing one first."""
    found: list[tuple[str, str, Mapping[str, Any], str]] = []
    if "config.json" in json_files and isinstance(json_files["config.json"].value, dict):
        config = json_files["config.json"].value
        for outer in ("", *TEXT_KEYS):
            holder = config if not outer else config.get(outer)
            if isinstance(holder, dict):
                found += _in_config(holder, outer + "." if outer else "")
    for file, default in SIDECARS:
        try:
            raw = json_files[file].object() if file in json_files else None
        except MalformedFile:
            continue
        if raw is not None:
            found.append((file, "", raw, _method_name(raw, default)))
    return found


def _in_config(config: Mapping[str, Any], prefix: str) -> list[tuple[str, str, Mapping[str, Any], str]]:
    raw = config.get("quantization_config")
    if isinstance(raw, dict):
        return [("config.json", prefix + "quantization_config", raw, _method_name(raw, ""))]
    raw = config.get("quantization")
    if isinstance(raw, dict) and "bits" in raw:
        return [("config.json", prefix + "quantization", raw, "mlx")]
    raw = config.get("compression_config")
    if isinstance(raw, dict):
        return [("config.json", prefix + "compression_config", raw, _method_name(raw, "compressed-tensors"))]
    return []


def _method_name(raw: Mapping[str, Any], default: str) -> str:
    name = raw.get("quant_method")
    if isinstance(name, str):
        return name.lower()
    if raw.get("load_in_4bit") or raw.get("load_in_8bit"):
        return "bitsandbytes"
    return default or "missing"

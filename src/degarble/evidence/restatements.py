"""Evidence about numbers that are written more than once: in a sidecar, or beside the key that governs.

Only one place governs, but loaders differ in which: AutoGPTQ opens `quantize_config.json`, others `config.json`;
ModelOpt's `quant_algo` says everything that its `config_groups` say again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from degarble.checkpoint.json_file import JsonFile
from degarble.evidence.declaration import quantization_objects
from degarble.evidence.declared_key import MAX_DEPTH, NOT_WEIGHTS
from degarble.evidence.store import provides
from degarble.methods.interface import Declaration

SPELLINGS: Mapping[str, str] = {
    "num_bits": "num_bits",
    "bits": "num_bits",
    "w_bit": "num_bits",
    "group_size": "group_size",
    "q_group_size": "group_size",
}


class Restatement(msgspec.Struct, frozen=True, kw_only=True):
    """One number that repeats what another place of the config says."""

    file: str
    key: str
    about: str
    """num_bits | group_size"""
    value: int


@provides("restatements")
def restatements(json_files: Mapping[str, JsonFile], declaration: Declaration) -> tuple[Restatement, ...]:
    """Every bit width and group size that does not govern."""
    found: list[Restatement] = []
    for file, key, raw, _ in quantization_objects(json_files):
        if (file, key) != (declaration.file, declaration.key):
            found += _numbers(file, key, raw, 0)
        elif declaration.method == "modelopt" and isinstance(raw.get("quant_algo"), str):
            found += _numbers(file, f"{key}.config_groups".lstrip("."), raw.get("config_groups"), 0)
    return tuple(found)


def _numbers(file: str, key: str, value: Any, depth: int) -> Iterator[Restatement]:
    if not isinstance(value, Mapping) or depth > MAX_DEPTH:
        return
    for name, inner in value.items():
        path = f"{key}.{name}" if key else str(name)
        if name in SPELLINGS and isinstance(inner, int) and not isinstance(inner, bool):
            yield Restatement(file=file, key=path, about=SPELLINGS[name], value=inner)
        elif name not in NOT_WEIGHTS:
            yield from _numbers(file, path, inner, depth + 1)

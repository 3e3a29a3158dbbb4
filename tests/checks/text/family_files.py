"""Files of healthy checkpoints to be mixed: folders of `family_patients` read into memory, and embeddings of any height."""

from __future__ import annotations

import json
import struct
from functools import cache
from typing import Any

from tests.family_patients import family_patients
from tests.memory_source import MemorySource


@cache
def files_of(patient: str) -> dict[str, bytes]:
    """Name -> bytes."""
    return {path.name: path.read_bytes() for path in (family_patients() / patient).iterdir()}


def values_of(patient: str, file: str) -> Any:
    """A JSON file, to be changed."""
    return json.loads(files_of(patient)[file])


def mixed(patient: str, **changed: Any) -> MemorySource:
    """The patient with other contents for some files: `tokenizer_config=…`; None removes one."""
    files = dict(files_of(patient))
    for name, value in changed.items():
        file = name if name in files else f"{name}.json"
        if value is None:
            del files[file]
        else:
            files[file] = value if isinstance(value, bytes) else json.dumps(value).encode()
    return MemorySource(files)


def embedding(rows: int) -> bytes:
    """A shard with nothing but an embedding of two columns."""
    size = rows * 4
    entry = {"dtype": "BF16", "shape": [rows, 2], "data_offsets": [0, size]}
    header = json.dumps({"model.embed_tokens.weight": entry}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


def in_model(document: Any, rows: int, **others: Any) -> MemorySource:
    """A tokenizer.json and JSON files beside an embedding."""
    files = {"tokenizer.json": document, **{f"{name}.json": value for name, value in others.items()}}
    data = {name: value if isinstance(value, bytes) else json.dumps(value).encode() for name, value in files.items()}
    return MemorySource({**data, "model.safetensors": embedding(rows)})

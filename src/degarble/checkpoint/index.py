"""`model.safetensors.index.json`: which shard holds which tensor. Names in it are not trusted as paths."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from degarble.checkpoint.json_file import JsonFile
from degarble.errors import MalformedFile

MODEL_INDEX = "model.safetensors.index.json"
"""What transformers writes; Mistral's own loaders have one of another name."""


class ShardIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The index of one checkpoint."""

    file: str
    weight_map: Mapping[str, str]
    """Tensor -> shard, only entries whose shard is a safe name."""
    unsafe: Mapping[str, str]
    """Tensor -> shard name that leads out of the folder; never opened."""
    total_size: int | None

    @property
    def shards(self) -> tuple[str, ...]:
        """Shard names in order of first mention."""
        return tuple(dict.fromkeys(self.weight_map.values()))


def read_index(file: JsonFile) -> ShardIndex:
    """Judge a parsed index. Raises MalformedFile if it is no index at all."""
    value = file.object()
    mapping = value.get("weight_map")
    if not isinstance(mapping, dict):
        raise MalformedFile(file.name, "weight_map", "an object: tensor name -> shard file", _kind(mapping))
    if not set(map(type, mapping.values())) <= {str}:
        name, shard = next((name, shard) for name, shard in mapping.items() if not isinstance(shard, str))
        raise MalformedFile(file.name, f"weight_map.{name}", "a shard file name", _kind(shard))
    metadata = value.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    unsafe = {shard for shard in set(mapping.values()) if not is_plain_name(shard)}
    return ShardIndex(
        file=file.name,
        weight_map={name: shard for name, shard in mapping.items() if shard not in unsafe} if unsafe else mapping,
        unsafe={name: shard for name, shard in mapping.items() if shard in unsafe} if unsafe else {},
        total_size=total if isinstance(total, int) and not isinstance(total, bool) else None,
    )


def is_plain_name(name: str) -> bool:
    """A name that stays in the folder: relative, no `..`, no drive, no control characters, not empty."""
    if not name or "\\" in name or ":" in name or name.startswith("/") or len(name) > 1024:
        return False
    return all(part not in ("", ".", "..") for part in name.split("/")) and name.isprintable()


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a JSON {type(value).__name__}"

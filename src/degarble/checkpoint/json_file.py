"""Small JSON files: size and depth bounded, duplicate keys seen, never an exception but MalformedFile."""

from __future__ import annotations

from typing import Any

import msgspec

from degarble.checkpoint.interface import Source
from degarble.errors import MalformedFile, TargetError

MAX_JSON_BYTES = 64 * 1024 * 1024
"""The largest real ones are a tokenizer.json of 35 MB and an index of 92,000 tensors of 10 MB."""
MAX_JSON_CONTAINERS = 5_000_000
"""Objects and arrays; each takes some 60 bytes of memory for the two it takes in the file."""
MAX_JSON_DEPTH = 100
"""Deeper nesting than any configuration has; guards every later recursion."""


class JsonFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was there: its value, or why it has none."""

    name: str
    value: Any = None
    problem: MalformedFile | None = None

    def object(self) -> dict[str, Any]:
        """The value as an object. Raises MalformedFile if it is not one, or unreadable."""
        if self.problem is not None:
            raise self.problem
        if not isinstance(self.value, dict):
            raise MalformedFile(self.name, "byte 0", "a JSON object", f"a JSON {type(self.value).__name__}")
        return self.value


def read_json(source: Source, name: str) -> JsonFile:
    """Read one JSON file of a checkpoint. What is wrong with it is in `problem`."""
    try:
        size = source.files()[name]
        if size > MAX_JSON_BYTES:
            raise MalformedFile(name, "size", f"at most {MAX_JSON_BYTES} bytes", f"{size} bytes")
        return JsonFile(name=name, value=parse_json(source.read(name), name))
    except MalformedFile as problem:
        return JsonFile(name=name, problem=problem)
    except TargetError as error:
        return JsonFile(name=name, problem=MalformedFile(name, "byte 0", "a readable file", str(error)))


def parse_json(raw: bytes, name: str) -> Any:
    """Decode strictly (UTF-8, RFC 8259). Raises MalformedFile."""
    if raw[:3] == b"\xef\xbb\xbf":
        raise MalformedFile(name, "byte 0", "JSON in UTF-8", "a byte order mark, which most readers refuse")
    num_containers = raw.count(b"[") + raw.count(b"{")
    if num_containers > MAX_JSON_CONTAINERS:
        raise MalformedFile(name, "byte 0", f"at most {MAX_JSON_CONTAINERS} objects and arrays", str(num_containers))
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedFile(name, "byte 0", "valid JSON", str(error)) from None
    except RecursionError:
        raise MalformedFile(name, "byte 0", f"at most {MAX_JSON_DEPTH} levels", "deeper nesting") from None
    if _too_deep(value):
        raise MalformedFile(name, "byte 0", f"at most {MAX_JSON_DEPTH} levels", "deeper nesting")
    return value


def _too_deep(value: Any) -> bool:
    """Walk level by level, without recursion; large flat arrays of scalars cost one look."""
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(MAX_JSON_DEPTH):
        level = [child for item in level for child in _containers(item)]
        if not level:
            return False
    return True


_CONTAINERS = frozenset((dict, list))


def _containers(item: Any) -> list[Any]:
    children = item.values() if isinstance(item, dict) else item
    if _CONTAINERS.isdisjoint(map(type, children)):
        return []
    return [child for child in children if type(child) in _CONTAINERS]

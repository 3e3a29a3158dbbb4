"""KV events as vLLM, SGLang and tools beside them publish them, brought to one form.

A publisher sends three frames: topic, sequence number (8 bytes, big endian) and a msgpack payload. The payload is a batch
`[ts, [events], rank]` or the same as a map; an event is a tagged map (vLLM's KVCacheEvent today) or an array whose first
item is the tag (SGLang, and vLLM before). Fields after the known ones and unknown keys are ignored, as every consumer
does. Shapes: vllm/distributed/kv_events.py, sglang/srt/disaggregation/kv_events.py.

    BlockStored   block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name, extra_keys,
                  group_idx, kv_cache_spec_kind, kv_cache_spec_sliding_window, locality, ownership, session_id
    BlockRemoved  block_hashes, medium, group_idx, locality, ownership
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Hash = int | str
END_OF_REPLAY = -1
MAX_EVENTS = 1 << 20
"""Events of one batch; an engine's step has some hundreds."""
_STORED = (
    *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
    *("extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"),
)
_REMOVED = ("block_hashes", "medium", "group_idx")


class NotABatch(ValueError):
    """A record that is none; the message says what was expected and found."""


class Stored(msgspec.Struct, frozen=True):
    """Blocks were published under chained hashes."""

    hashes: list[Hash]
    parent: Hash | None
    tokens: list[int]
    block_size: int
    lora: Hash | None
    keys: list[Any] | None
    """Of each block: images, salt, adapter …"""
    medium: str
    group: int
    kind: str | None
    """Attention kind of the group, where the engine says it."""


class Removed(msgspec.Struct, frozen=True):
    """One physical copy of each hash is gone."""

    hashes: list[Hash]
    medium: str
    group: int


class Cleared(msgspec.Struct, frozen=True):
    """The whole cache is empty."""


class Unknown(msgspec.Struct, frozen=True):
    """An event that this version does not know."""

    name: str


Change = Stored | Removed | Cleared | Unknown


class Batch(msgspec.Struct):
    """What one message carried."""

    changes: list[Change]
    sequence: int | None = None
    topic: str = ""
    rank: int | None = None
    is_array: bool = False
    """Events were arrays: SGLang or an older vLLM, whose hashes need not be chained."""


def batch_of(value: Any) -> Batch | None:
    """A decoded record as a batch; None for the end marker of a replay. Raises NotABatch."""
    if isinstance(value, dict):
        return _from_map(value)
    if isinstance(value, list | tuple):
        frames = _frames(value)
        return _from_list(value) if frames is None else _framed(*frames)
    raise NotABatch(f"expected a batch of KV events, found {_kind(value)}")


def _from_map(value: Mapping[Any, Any]) -> Batch | None:
    sequence = value.get("seq", value.get("sequence"))
    topic = value.get("topic")
    inner = next((value[key] for key in ("batch", "payload", "data") if key in value), None)
    if "events" in value:
        batch = _batch(
            value["events"], value.get("data_parallel_rank", value.get("attn_dp_rank", value.get("dp_rank")))
        )
    elif inner is not None:
        return _framed(topic, sequence, inner)
    elif isinstance(value.get("type"), str):
        batch = _batch([value], None)
    else:
        raise NotABatch(f"an object without events, batch or type; its keys are {', '.join(map(str, list(value)[:6]))}")
    batch.sequence, batch.topic = _sequence(sequence), _text(topic)
    return batch


def _frames(value: Sequence[Any]) -> tuple[Any, Any, Any] | None:
    """Topic, sequence and payload, where the list is that (a replay has no topic); None where it is a batch."""
    parts = [part for part in value if part != b""] if len(value) == 4 else list(value)
    if len(parts) == 2 and _is_sequence(parts[0]) and isinstance(parts[1], bytes):
        return "", parts[0], parts[1]
    is_named = len(parts) == 3 and isinstance(parts[0], str | bytes) and _is_sequence(parts[1])
    return (parts[0], parts[1], parts[2]) if is_named else None


def _is_sequence(value: Any) -> bool:
    return (isinstance(value, bytes) and len(value) == 8) or (isinstance(value, int) and not isinstance(value, bool))


def _framed(topic: Any, sequence: Any, payload: Any) -> Batch | None:
    number = _sequence(sequence)
    if number == END_OF_REPLAY and not payload:
        return None
    if isinstance(payload, bytes):
        try:
            payload = msgspec.msgpack.decode(payload)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise NotABatch(f"the payload is no msgpack value: {str(error)[:120]}") from None
    if isinstance(payload, dict) and "events" in payload:
        batch = _from_map(payload)
    elif isinstance(payload, list | tuple):
        batch = _from_list(payload)
    else:
        raise NotABatch(f"expected a batch in the payload, found {_kind(payload)}")
    assert batch is not None
    batch.sequence = number if number is not None else batch.sequence
    batch.topic = _text(topic) or batch.topic
    return batch


def _from_list(value: Sequence[Any]) -> Batch:
    if len(value) >= 2 and isinstance(value[0], int | float) and isinstance(value[1], list):
        return _batch(value[1], value[2] if len(value) > 2 else None)
    raise NotABatch(f"expected [ts, [events], rank], found a list of {', '.join(map(_kind, value[:4])) or 'nothing'}")


def _batch(events: Any, rank: Any) -> Batch:
    if not isinstance(events, list):
        raise NotABatch(f"events: expected a list, found {_kind(events)}")
    if len(events) > MAX_EVENTS:
        raise NotABatch(f"events: {len(events)} in one batch, at most {MAX_EVENTS} are read")
    changes = [_change(event, index) for index, event in enumerate(events)]
    is_array = any(isinstance(event, list) for event in events)
    return Batch(changes=changes, rank=rank if isinstance(rank, int) else None, is_array=is_array)


def _change(event: Any, index: int) -> Change:
    place = f"events[{index}]"
    if isinstance(event, list):
        name, fields = (event[0] if event else None), _named(event)
    elif isinstance(event, dict):
        name, fields = event.get("type"), event
    else:
        raise NotABatch(f"{place}: expected an event, found {_kind(event)}")
    if name == "BlockStored":
        return _stored(fields, place)
    if name == "BlockRemoved":
        hashes = _hashes(fields.get("block_hashes"), f"{place}.block_hashes")
        return Removed(hashes, _text(fields.get("medium")), _count(fields.get("group_idx"), 0, place, "group_idx"))
    if name == "AllBlocksCleared":
        return Cleared()
    if isinstance(name, str):
        return Unknown(name[:80])
    raise NotABatch(f"{place}: no event has the type {str(name)[:40]!r}")


def _named(event: Sequence[Any]) -> dict[str, Any]:
    """An array by the names of its fields; SGLang appends a map of metadata instead of what vLLM has there."""
    order = _STORED if event and event[0] == "BlockStored" else _REMOVED
    fields = dict(zip(order, event[1:], strict=False))
    for name, value in fields.items():
        if isinstance(value, dict) and name in ("lora_name", "extra_keys"):
            hashes = fields.get("block_hashes")
            count = len(hashes) if isinstance(hashes, list) else 0
            return fields | {name: None, "extra_keys": [[value]] * count}
    return fields


def _stored(fields: Mapping[str, Any], place: str) -> Stored:
    tokens = fields.get("token_ids")
    if not isinstance(tokens, list) or not set(map(type, tokens)) <= {int} or _is_beyond(tokens):
        raise NotABatch(f"{place}.token_ids: expected a list of integers, found {_kind(tokens)}")
    parent, keys = fields.get("parent_block_hash"), fields.get("extra_keys")
    if keys is not None and not isinstance(keys, list):
        raise NotABatch(f"{place}.extra_keys: expected a list, found {_kind(keys)}")
    lora = fields.get("lora_name")
    lora = fields.get("lora_id") if lora is None else lora
    kind = fields.get("kv_cache_spec_kind")
    size = _count(fields.get("block_size"), None, place, "block_size")
    if size == 0:
        raise NotABatch(f"{place}.block_size: expected at least 1, found 0")
    return Stored(
        hashes=_hashes(fields.get("block_hashes"), f"{place}.block_hashes"),
        parent=None if parent is None else _hash(parent, f"{place}.parent_block_hash"),
        tokens=tokens,
        block_size=size,
        lora=lora if isinstance(lora, int | str) else None,
        keys=keys,
        medium=_text(fields.get("medium")),
        group=_count(fields.get("group_idx"), 0, place, "group_idx"),
        kind=kind if isinstance(kind, str) else None,
    )


def _is_beyond(tokens: list[int]) -> bool:
    """Whether one is a token id of no vocabulary."""
    return bool(tokens) and max(max(tokens), -min(tokens)) >= 1 << 40


def _hashes(value: Any, place: str) -> list[Hash]:
    if not isinstance(value, list):
        raise NotABatch(f"{place}: expected a list, found {_kind(value)}")
    return [_hash(one, place) for one in value]


def _hash(value: Any, place: str) -> Hash:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    raise NotABatch(f"{place}: expected a hash, found {_kind(value)}")


def _count(value: Any, default: int | None, place: str, name: str) -> int:
    if value is None and default is not None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32:
        return value
    raise NotABatch(f"{place}.{name}: expected a count, found {_kind(value)}")


def _sequence(value: Any) -> int | None:
    if isinstance(value, bytes) and len(value) == 8:
        return int.from_bytes(value, "big", signed=True)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value[:80] if isinstance(value, str) else ""


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float):
        return str(value)[:40]
    return {"dict": "an object", "str": "text", "bytes": "bytes"}.get(type(value).__name__, f"a {type(value).__name__}")

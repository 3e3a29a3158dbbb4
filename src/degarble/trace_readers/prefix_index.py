"""The index of hashes that a router keeps from KV events, and what the events break while it is kept.

Without block ids a published block is known by its hash alone. Judged are what such a stream can prove: sequence numbers
without gaps, removals that have a store, parents that exist, whole blocks, and one content (parent, tokens, adapter, salt,
images) for one hash. Every physical copy has its own store and removal (ai-dynamo/dynamo#8012), so copies are counted.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from typing import Any

import msgspec

from degarble.trace.violation import Journal, Number, Violation
from degarble.trace_readers.kv_event import Batch, Cleared, Hash, Removed, Stored, Unknown

MAX_HASHES = 4_000_000
"""Hashes that are remembered; with 16 tokens a block, 64 million tokens."""
MAX_GONE = 200_000
MAX_STREAMS = 4096
Key = tuple[int, Hash]
"""Cache group and hash."""


class Entry:
    """One hash: what it stands for, and its copies by medium."""

    __slots__ = ("copies", "line", "namespace", "parent", "tokens")

    def __init__(self, parent: Hash | None, tokens: bytes, namespace: bytes, line: int) -> None:
        self.parent = parent
        self.tokens = tokens
        self.namespace = namespace
        self.line = line
        self.copies: dict[str, int] = defaultdict(int)


class PrefixIndex:
    """Follows one recording; `journal` has what is broken."""

    def __init__(self, file: str) -> None:
        self.journal = Journal()
        self.journal.file = file
        self.ranks: dict[int, dict[Key, Entry]] = defaultdict(dict)
        self.gone: OrderedDict[tuple[int, Key], None] = OrderedDict()
        self.unknown: dict[str, int] = {}
        self.counts: dict[str, int] = defaultdict(int)
        """What could not be judged, and how often."""
        self.streams: dict[tuple[str, int | None], int] = {}
        self.is_torn = False
        """A record could not be read: its rank is unknown."""
        self.late: set[int] = set()
        """Ranks of which something is missing: blocks, or further copies of them, may have been stored unseen."""
        self.num_changes = 0

    def apply(self, batch: Batch, line: int) -> None:
        """Judge and take in one batch."""
        self._sequence(batch, line)
        rank = batch.rank or 0
        for change in batch.changes:
            self.num_changes += 1
            if isinstance(change, Stored):
                self._store(change, rank, line, batch.is_array)
            elif isinstance(change, Removed):
                self._remove(change, rank, line)
            elif isinstance(change, Cleared):
                self._clear(rank)
            elif isinstance(change, Unknown) and len(self.unknown) < MAX_STREAMS:
                self.unknown.setdefault(change.name, line)

    def fail(self, rule: str, line: int, message: str, key: str, **numbers: Any) -> None:
        """Write one violation."""
        measured: dict[str, Number] = numbers.get("measured", {})
        bound: dict[str, Number] = numbers.get("bound", {})
        violation = Violation(
            rule=rule,
            line=line,
            message=message,
            file=self.journal.file,
            key=key,
            measured=measured,
            bound=bound,
            is_info=bool(numbers.get("is_info")),
            is_likely=bool(numbers.get("is_likely")),
        )
        self.journal.add(violation)

    def broken_record(self, line: int, message: str) -> None:
        """A record that is no batch: what it carried is lost."""
        self.is_torn = True
        self.fail("KVC623", line, f"record {line} is no batch of KV events: {message}", f"record {line}")

    def _sequence(self, batch: Batch, line: int) -> None:
        number, stream, rank = batch.sequence, (batch.topic, batch.rank), batch.rank or 0
        if number is None:
            self.late.add(rank)
            self.counts["batches without a sequence number"] += 1
            return
        last = self.streams.get(stream)
        key = f"sequence of {batch.topic or 'the publisher'}" + (f", rank {batch.rank}" if batch.rank else "")
        if last is None and number > 0:
            self.late.add(rank)
            self.counts[f"batches before the first ({key} begins at {number})"] = number
        elif last is not None and number == 0 and last > 0:
            self.fail("KVC623", line, f"{key} begins again after {last}: the engine restarted", key, is_info=True)
            self._clear(rank)
        elif last is not None and number != last + 1:
            lost = number - last - 1
            what = f"{lost} batches are missing before it" if lost > 0 else "it came before, or batches changed places"
            self.late.add(rank)
            numbers = {"measured": {"sequence": _short(number)}, "bound": {"sequence": last + 1}}
            self.fail("KVC623", line, f"{key} goes from {last} to {number}: {what}", key, **numbers)
        if stream in self.streams or len(self.streams) < MAX_STREAMS:
            self.streams[stream] = max(number, last) if last is not None and number else number

    def _store(self, event: Stored, rank: int, line: int, is_array: bool) -> None:
        size, count = event.block_size, len(event.hashes)
        parent = event.parent
        if parent is not None:
            self._parent(event, rank, line)
        is_aligned = len(event.tokens) == count * size
        if len(event.tokens) < count * size:
            self.fail(
                "KVC627",
                line,
                f"{count} blocks of {size} tokens are published with {len(event.tokens)} token ids: "
                f"{_name(event.hashes[-1])} is not full",
                f"hash {_name(event.hashes[-1])}",
                measured={"token_ids": len(event.tokens)},
                bound={"token_ids": count * size},
            )
        elif not is_aligned:
            self.counts["stores with more token ids than their hashes cover (columns outside a window)"] += 1
        if event.keys is not None and len(event.keys) != count:
            self.counts["stores whose extra_keys are not one for each hash"] += 1
        for index, name in enumerate(event.hashes):
            tokens = _digest(event.tokens[index * size : (index + 1) * size]) if is_aligned else b""
            keys = event.keys[index] if event.keys is not None and index < len(event.keys) else None
            told = Entry(parent, tokens, _digest([event.lora is None, str(event.lora), _plain(keys)]), line)
            self._publish(rank, (event.group, name), told, event.medium, is_array)
            parent = name

    def _parent(self, event: Stored, rank: int, line: int) -> None:
        assert event.parent is not None
        key = (event.group, event.parent)
        if key in self.ranks[rank]:
            return
        if self.is_torn or rank in self.late:
            self.counts["parents that may have been stored before the recording began"] += 1
            return
        is_full = event.kind is not None and event.kind.startswith(("full", "mla"))
        why = "was removed before" if (rank, key) in self.gone else "was never stored"
        self.fail(
            "KVC623",
            line,
            f"blocks are stored after the parent {_name(event.parent)}, which {why}",
            f"hash {_name(event.parent)}",
            is_likely=not is_full,
            is_info=event.kind is not None and not is_full,
        )

    def _publish(self, rank: int, key: Key, told: Entry, medium: str, is_array: bool) -> None:
        entries = self.ranks[rank]
        entry = entries.get(key)
        if entry is None:
            if len(entries) >= MAX_HASHES:
                self.counts[f"hashes beyond the {MAX_HASHES:,} that are remembered"] += 1
                return
            entry = entries[key] = told
            self.gone.pop((rank, key), None)
        elif told.tokens and entry.tokens:
            what = _difference(entry, told, is_array)
            if what:
                self.fail(
                    "KVC608",
                    told.line,
                    f"hash {_name(key[1])} stands for two contents: {what} differ from those of record {entry.line}",
                    f"hash {_name(key[1])}",
                    measured={"contents": 2},
                    bound={"contents": 1},
                )
        entry.copies[medium] += 1

    def _remove(self, event: Removed, rank: int, line: int) -> None:
        for name in event.hashes:
            key = (event.group, name)
            entry = self.ranks[rank].get(key)
            if entry is None or not entry.copies.get(event.medium):
                self._orphan(rank, key, event.medium, entry, line)
                continue
            entry.copies[event.medium] -= 1
            if not any(entry.copies.values()):
                self._forget(rank, key)

    def _orphan(self, rank: int, key: Key, medium: str, entry: Entry | None, line: int) -> None:
        if self.is_torn or rank in self.late:
            self.counts["removals of blocks, or copies, that may have been stored before the recording began"] += 1
            return
        where = f" on {medium}" if medium else ""
        why = "was removed before" if (rank, key) in self.gone else "was never stored"
        if entry is not None:
            held = ", ".join(name or "the default medium" for name, copies in entry.copies.items() if copies)
            why = f"has no copy there (copies on {held})"
        self.fail(
            "KVC623",
            line,
            f"hash {_name(key[1])} is removed{where} and {why}",
            f"hash {_name(key[1])}",
            measured={"copies": -1},
            bound={"min": 0},
        )

    def _forget(self, rank: int, key: Key) -> None:
        del self.ranks[rank][key]
        self.gone[rank, key] = None
        if len(self.gone) > MAX_GONE:
            self.gone.popitem(last=False)

    def _clear(self, rank: int) -> None:
        self.ranks.pop(rank, None)
        self.late.discard(rank)
        self.gone.clear()


def _difference(entry: Entry, told: Entry, is_array: bool) -> str:
    parts = []
    if entry.tokens != told.tokens:
        parts.append("token ids")
    if not is_array and entry.parent != told.parent:
        parts.append("parents")
    if entry.namespace != told.namespace:
        parts.append("adapters, salts or images")
    return " and ".join(parts)


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(value, order="deterministic"), digest_size=12).digest()


def _plain(keys: Any, depth: int = 8) -> Any:
    """Keys as msgpack can hold them: integers of any size and deep nesting as text."""
    if isinstance(keys, list | tuple) and depth:
        return [_plain(one, depth - 1) for one in keys]
    if isinstance(keys, dict) and depth:
        return sorted([str(name), _plain(one, depth - 1)] for name, one in keys.items())
    return repr(keys)


def _name(value: Hash) -> str:
    return str(value)[:20]


def _short(number: int) -> int | str:
    return number if abs(number) < 1 << 53 else f"about 2^{number.bit_length() - 1}"

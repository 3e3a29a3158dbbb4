"""Recorded KV events: what a subscriber of vLLM's or SGLang's ZMQ publisher wrote to a file.

ZMQ names no file format, so a recording is any of: msgpack values one after the other (the frames `[topic, sequence,
payload]`, a replay's `[sequence, payload]`, or payloads alone), JSON lines (a batch, `{"seq": …, "batch": …}`, or one event
a line), or one JSON array of these. A place is the 0-based number of the message, or of the line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, BinaryIO, ClassVar

import msgspec

from degarble.errors import TargetError
from degarble.trace_readers.interface import HEAD_BYTES, ForeignVerdict, TraceReader
from degarble.trace_readers.kv_event import NotABatch, Unknown, batch_of
from degarble.trace_readers.lines import TooLong, read_lines, shown
from degarble.trace_readers.msgpack_stream import Damaged, read_values
from degarble.trace_readers.prefix_index import PrefixIndex

MAX_DOCUMENT_BYTES = 256 << 20
"""A JSON array is decoded as a whole; JSON lines and msgpack have no such limit."""
_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError)


class KVEventsReader(TraceReader):
    """Reads recordings of KV events."""

    name: ClassVar[str] = "kv-events"
    title: ClassVar[str] = "KV events"
    judged: ClassVar[Mapping[str, str]] = {
        "KVC608": "one hash has one content; whether a request's hit had its own tokens is not in the events",
        "KVC623": "sequence numbers, balance of stores and removals, parents",
        "KVC627": "published blocks are full; whether they were computed, or rewritten while published, is not in the events",
    }
    lacks: ClassVar[str] = "they carry no block ids, slots, positions, reference counts, hits or forwards"

    def recognises(self, head: bytes, path: str) -> bool:
        """By the first record that is a batch."""
        first = head.lstrip()[:1]
        if first in (b"{", b"["):
            return _is_json_recording(head)
        return (
            bool(head) and (head[0] & 0xF0 in (0x80, 0x90) or head[0] in (0xDC, 0xDE)) and _is_msgpack_recording(path)
        )

    def read(self, path: str) -> ForeignVerdict:
        """One recording: every record, in order."""
        index = PrefixIndex(PurePath(path).name)
        verdict = self.verdict()
        num_lines = num_batches = 0
        for line, value, problem in _records(path, verdict.unjudged):
            num_lines += 1
            try:
                batch = None if problem else batch_of(value)
                if batch is not None:
                    index.apply(batch, line)
                    num_batches += any(not isinstance(change, Unknown) for change in batch.changes) or not batch.changes
            except NotABatch as error:
                problem = str(error)
            except (RecursionError, OverflowError):
                problem = "it is nested too deeply, or holds numbers of no machine"
            if problem:
                index.broken_record(line, problem)
        if not num_batches:
            raise TargetError(f"{path}: no KV events: none of its {num_lines} records is a batch")
        return _finished(verdict, index, num_lines)


def _finished(verdict: ForeignVerdict, index: PrefixIndex, num_lines: int) -> ForeignVerdict:
    verdict.violations = sorted(index.journal.violations, key=lambda violation: violation.line)
    verdict.further = dict(index.journal.further)
    verdict.num_events, verdict.num_lines = index.num_changes, num_lines
    verdict.unknown = dict(index.unknown)
    verdict.kinds = frozenset({"store", "evict"})
    for what, count in index.counts.items():
        verdict.unjudged[what] = f"{count:,}"
    return verdict


def _records(path: str, unjudged: dict[str, str]) -> Iterator[tuple[int, Any, str]]:
    """Number, decoded value, and what is wrong with the record ('' if nothing)."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(HEAD_BYTES)
            stream.seek(0)
            first = head.lstrip()[:1]
            if first == b"[" and not _is_line(head):
                yield from _document(path, stream)
            elif first in (b"{", b"[", b""):
                yield from _lines(path)
            else:
                yield from _values(path, stream, unjudged)
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror or error}") from None


def _lines(path: str) -> Iterator[tuple[int, Any, str]]:
    for number, line in read_lines(path):
        if isinstance(line, TooLong):
            yield number, None, f"a line of more than {line.num_bytes_at_least} bytes"
        elif line.strip():
            try:
                yield number, msgspec.json.decode(line), ""
            except _ERRORS as error:
                yield number, None, f"no JSON: {shown(line)} ({str(error)[:100]})"


def _document(path: str, stream: BinaryIO) -> Iterator[tuple[int, Any, str]]:
    size = os.fstat(stream.fileno()).st_size
    if size > MAX_DOCUMENT_BYTES:
        raise TargetError(
            f"{path}: a JSON array of {size} bytes, at most {MAX_DOCUMENT_BYTES} are read: write JSON lines"
        )
    try:
        value = msgspec.json.decode(stream.read(MAX_DOCUMENT_BYTES))
    except _ERRORS as error:
        raise TargetError(f"{path}: no JSON array of KV events: {str(error)[:160]}") from None
    for number, one in enumerate(value):
        yield number, one, ""


def _values(path: str, stream: BinaryIO, unjudged: dict[str, str]) -> Iterator[tuple[int, Any, str]]:
    number = -1
    try:
        for number, (offset, raw) in enumerate(read_values(stream)):
            try:
                yield number, msgspec.msgpack.decode(raw), ""
            except _ERRORS as error:
                yield number, None, f"at byte {offset}: no msgpack value: {str(error)[:100]}"
    except Damaged as error:
        left = os.path.getsize(path) - error.offset
        unjudged["the end of the file"] = f"{left:,} bytes from byte {error.offset:,} on cannot be cut into records"
        yield number + 1, None, f"at byte {error.offset}: {error}"


def _is_line(head: bytes) -> bool:
    """Whether the first line is a JSON value by itself."""
    line = head.lstrip().split(b"\n", 1)[0]
    try:
        value = msgspec.json.decode(line)
    except _ERRORS:
        return b"\n" not in head.strip() and len(head) == HEAD_BYTES
    return not (isinstance(value, list) and all(isinstance(one, dict | list) for one in value))


def _is_json_recording(head: bytes) -> bool:
    for line in head.lstrip().split(b"\n")[:20]:
        try:
            value = msgspec.json.decode(line)
        except _ERRORS:
            continue
        if isinstance(value, dict) and "ev" in value:
            return False
        if _is_batch(value) or (isinstance(value, list) and value and _is_batch(value[0])):
            return True
    start = head.lstrip()
    return start[:1] == b"[" and b'"BlockStored"' in start


def _is_msgpack_recording(path: str) -> bool:
    """Whether one of the first values is a batch with an event that is known."""
    try:
        with open(path, "rb") as stream:
            for number, (_, raw) in enumerate(read_values(stream)):
                if _is_batch(msgspec.msgpack.decode(raw)):
                    return True
                if number >= 3:
                    return False
    except (Damaged, OSError, *_ERRORS):
        pass
    return False


def _is_batch(value: Any) -> bool:
    try:
        batch = batch_of(value)
    except (NotABatch, RecursionError):
        return False
    return batch is not None and any(not isinstance(change, Unknown) for change in batch.changes)

"""From a file to events: in batches, with bounded memory, whatever the file holds.

A block of whole lines is decoded by one call; only where that fails is each line looked at by itself. A line longer
than MAX_LINE_BYTES is skipped without being kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from degarble.errors import TargetError
from degarble.trace.event import KINDS, AnyEvent, Broken

READ_BYTES = 1 << 16
"""Events of one block fit the processor's cache: 64 KiB blocks replay a third faster than 1 MiB ones."""
MAX_LINE_BYTES = 32 << 20
"""A prompt of a million tokens with its slots is about 15 MB."""
MAX_SHOWN = 80
Item = AnyEvent | Broken

_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyEvent)


def read_items(path: str | Path) -> Iterator[list[Item]]:
    """Batches of what the lines are, in order. Raises TargetError if the file cannot be read."""
    try:
        with open(path, "rb") as stream:
            yield from _batches(stream)
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror or error}") from None


def _batches(stream: BinaryIO) -> Iterator[list[Item]]:
    number = 0
    parts: list[bytes] = []
    """Pieces of the line that is not at its end yet."""
    held = 0
    is_skipping = False
    while chunk := stream.read(READ_BYTES):
        end = chunk.rfind(b"\n") + 1
        if is_skipping:
            if not end:
                continue
            chunk, end = _behind_line(chunk, end)
            is_skipping = False
            number += 1
        if end:
            items, lines = _decode(b"".join((*parts, chunk[:end])), number)
            number += lines
            yield items
            parts, held = [], 0
        parts.append(chunk[end:])
        held += len(parts[-1])
        if held > MAX_LINE_BYTES:
            yield [Broken(number, f"a line of more than {MAX_LINE_BYTES} bytes", has_counter=False)]
            parts, held, is_skipping = [], 0, True
    rest = b"".join(parts)
    if rest.strip():
        yield _decode(rest, number)[0]


def _behind_line(chunk: bytes, end: int) -> tuple[bytes, int]:
    """What follows the end of a line that was skipped, and where its last whole line ends."""
    start = chunk.find(b"\n") + 1
    return chunk[start:], end - start


def _decode(block: bytes, number: int) -> tuple[list[Item], int]:
    """The items of whole lines, and how many lines there were."""
    try:
        items = _decoder.decode_lines(block)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        pass
    else:
        return items, len(items)
    lines = block.splitlines() if b"\r" not in block else block.split(b"\n")
    found = [_one(line, number + index) for index, line in enumerate(lines) if line.strip()]
    return found, block.count(b"\n")


def _one(line: bytes, number: int) -> Item:
    try:
        item: Item = _decoder.decode(line)
        return item
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        problem = str(error)
    try:
        value = json.loads(line)  # reads NaN and Infinity, which engines in Python write into scales
    except (ValueError, RecursionError):
        return Broken(number, f"no JSON: {_shown(line)} ({problem[:120]})", has_counter=False)
    if not isinstance(value, dict):
        return Broken(number, f"a JSON {type(value).__name__}, not an object: {_shown(line)}", has_counter=False)
    return _object(value, number, problem)


def _object(value: dict[str, Any], number: int, problem: str) -> Item:
    """An object that is no known event as it stands: an unknown one, one with NaN in it, or a broken one."""
    n = value.get("n")
    has_counter = isinstance(n, int) and not isinstance(n, bool)
    place = n if isinstance(n, int) and has_counter else number
    ev = value.get("ev")
    if not isinstance(ev, str):
        return Broken(place, "no text in `ev`", has_counter=has_counter)
    if not has_counter:
        return Broken(place, f"{ev[:MAX_SHOWN]!r} has no counter in `n`", has_counter=False)
    if ev not in KINDS:
        return Broken(place, f"unknown event {ev[:MAX_SHOWN]!r}", has_counter=True, is_unknown=True, ev=ev[:MAX_SHOWN])
    try:
        event: Any = msgspec.convert({key: item for key, item in value.items() if key != "ev"}, KINDS[ev])
        known: Item = event
        return known
    except (msgspec.MsgspecError, RecursionError) as error:
        problem = str(error)
    return Broken(place, f"{ev}: {problem[:200]}", has_counter=True)


def _shown(line: bytes) -> str:
    return ascii(line[:MAX_SHOWN])[2:-1] + ("…" if len(line) > MAX_SHOWN else "")

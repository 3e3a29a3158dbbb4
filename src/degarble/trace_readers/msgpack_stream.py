"""Where each value of a concatenated msgpack stream ends, without decoding it and without keeping more than one.

msgspec decodes one whole value; a recording is many of them, one after the other. The end of a value follows from its
heads: each names its length in bytes, or how many values follow it (https://github.com/msgpack/msgpack/blob/master/spec.md).
Depth needs no stack, since only the number of values that are still to come counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

MAX_VALUE_BYTES = 32 << 20
READ_BYTES = 1 << 18
_SIZES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}
"""bin, str and ext: bytes of the length that follows the head."""
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8} | {
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
"""nil, booleans, floats, integers, fixext: bytes after the head."""
_COUNTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""array and map: bytes of the count, and values an entry."""


class Damaged(Exception):
    """From this byte on the stream cannot be cut into values."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


class _Cutter:
    """Finds the end of the value at the beginning of `held`, going on where it stopped when more bytes came."""

    def __init__(self) -> None:
        self.held = bytearray()
        self.at = 0
        self.needed = 1

    def end(self) -> int | None:
        """Bytes of the whole value; None while it is not all there. Raises ValueError for a head that means nothing."""
        held, at, needed, size = self.held, self.at, self.needed, len(self.held)
        while needed and at < size:
            step, more = _head(held, at, size)
            if step is None:
                break
            at, needed = at + step, needed - 1 + more
        self.at, self.needed = at, needed
        return at if not needed and at <= size else None

    def cut(self, end: int) -> bytes:
        """Take the value off."""
        value = bytes(self.held[:end])
        del self.held[:end]
        self.at, self.needed = 0, 1
        return value


def _head(held: bytearray, at: int, size: int) -> tuple[int | None, int]:
    """Bytes up to the next head, and how many values this one contains; None where the head is not all there."""
    head = held[at]
    if head < 0x80 or head >= 0xE0:
        return 1, 0
    if head < 0x90:
        return 1, 2 * (head & 0x0F)
    if head < 0xA0:
        return 1, head & 0x0F
    if head < 0xC0:
        return 1 + (head & 0x1F), 0
    if head in _FIXED:
        return 1 + _FIXED[head], 0
    width, times = _COUNTS.get(head, (_SIZES.get(head, 0), 0))
    if not width:
        raise ValueError(f"byte 0x{head:02x} begins no msgpack value")
    if at + 1 + width > size:
        return None, 0
    number = int.from_bytes(held[at + 1 : at + 1 + width], "big")
    if times:
        return 1 + width, number * times
    return 1 + width + number + (0xC7 <= head <= 0xC9), 0


def read_values(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Byte offset and bytes of each value. Raises Damaged where a value is cut off, too long or none."""
    cutter = _Cutter()
    offset = 0
    while chunk := stream.read(READ_BYTES):
        cutter.held += chunk
        try:
            while cutter.held and (end := cutter.end()) is not None:
                yield offset, cutter.cut(end)
                offset += end
        except ValueError as error:
            raise Damaged(offset, str(error)) from None
        if len(cutter.held) > MAX_VALUE_BYTES or cutter.needed > MAX_VALUE_BYTES or cutter.at > MAX_VALUE_BYTES:
            raise Damaged(offset, f"a value of more than {MAX_VALUE_BYTES} bytes")
    if cutter.held:
        raise Damaged(offset, f"the last value is cut off after {len(cutter.held)} bytes")

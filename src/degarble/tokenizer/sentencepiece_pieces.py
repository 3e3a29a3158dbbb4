"""The pieces of a sentencepiece model, read and changed in its protobuf, without the library.

    ModelProto:    1 pieces (repeated) | 2 trainer_spec | 3 normalizer_spec | …
    SentencePiece: 1 piece, a string | 2 score, a float | 3 type, a varint (absent: 1 normal)

Types: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte. The library refuses models that it does not
understand as a whole, and is an extra; comparing a file with tokenizer.json needs only this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from degarble.errors import MalformedFile
from degarble.tokenizer.vocabulary import MAX_TOKEN_IDS

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class StoredPiece(NamedTuple):
    """One piece and the half-open range of its record, tag and length included."""

    text: str
    kind: int
    start: int
    end: int


def read_pieces(raw: bytes, file: str, limit: int = MAX_TOKEN_IDS) -> list[StoredPiece]:
    """The pieces by id, all or the first `limit`. Raises MalformedFile if the bytes are no such model.

    Llama 3 gives the name tokenizer.model to a file of another kind.
    """
    return [StoredPiece._make(found) for found in _scan(raw, file, limit)]


def read_texts(raw: bytes, file: str) -> list[str]:
    """Only the strings, in half the time. Raises MalformedFile."""
    return [text for text, _, _, _ in _scan(raw, file, MAX_TOKEN_IDS)]


def texts_of_kind(raw: bytes, file: str, kind: int) -> list[str]:
    """Strings of one type. Raises MalformedFile."""
    return [text for text, stored, _, _ in _scan(raw, file, MAX_TOKEN_IDS) if stored == kind]


def _scan(raw: bytes, file: str, limit: int) -> list[tuple[str, int, int, int]]:
    """Pieces of the usual form (below 128 bytes; piece, score, perhaps type) are read in place: there are 256,000."""
    found: list[tuple[str, int, int, int]] = []
    at, size = 0, len(raw)
    data = raw + bytes(512)  # so that looking ahead needs no check
    try:
        while at < size and len(found) < limit:
            length = data[at + 1]
            end, rest = at + 2 + length, at + 4 + data[at + 3]
            tail = end - rest if length < 0x80 and data[at] == data[at + 2] == 0x0A and data[rest] == 0x15 else 0
            if tail == 5 and end <= size:
                found.append((raw[at + 4 : rest].decode(), NORMAL, at, end))
            elif tail == 7 and end <= size and data[rest + 5] == 0x18:
                found.append((raw[at + 4 : rest].decode(), data[rest + 6], at, end))
            else:
                number, wire, _, begin, end = next(_fields(raw, at, size))
                if number == 1 and wire == _BYTES:
                    found.append((*_piece(raw, begin, end), at, end))
            at = end
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise MalformedFile(file, f"byte {at}", "a sentencepiece model", str(error)) from None
    if not found:
        raise MalformedFile(file, "byte 0", "a sentencepiece model", "no pieces")
    return found


def with_kind(raw: bytes, piece: StoredPiece, kind: int) -> bytes:
    """The model with another type for one piece."""
    body = b""
    for number, _, start, _, end in _fields(raw, *_body(raw, piece)):
        if number != 3:
            body += raw[start:end]
    body += b"\x18" + _varint(kind)
    return raw[: piece.start] + b"\x0a" + _varint(len(body)) + body + raw[piece.end :]


def exchanged(raw: bytes, one: StoredPiece, other: StoredPiece) -> bytes:
    """The model with two records in each other's place."""
    first, second = sorted((one, other), key=lambda piece: piece.start)
    middle = raw[first.end : second.start]
    return (
        raw[: first.start] + raw[second.start : second.end] + middle + raw[first.start : first.end] + raw[second.end :]
    )


def _body(raw: bytes, piece: StoredPiece) -> tuple[int, int]:
    _, begin = _read_varint(raw, piece.start + 1)
    return begin, piece.end


def _piece(raw: bytes, begin: int, end: int) -> tuple[str, int]:
    text, kind = "", NORMAL
    for number, wire, _, start, stop in _fields(raw, begin, end):
        if number == 1 and wire == _BYTES:
            text = raw[start:stop].decode()
        elif number == 3 and wire == _VARINT:
            kind, _ = _read_varint(raw, start)
    return text, kind


def _fields(raw: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, wire type, start of the record, begin and end of the value."""
    while at < end:
        start = at
        tag, at = _read_varint(raw, at)
        number, wire = tag >> 3, tag & 7
        begin = at
        if wire == _VARINT:
            _, at = _read_varint(raw, at)
        elif wire == _BYTES:
            length, begin = _read_varint(raw, at)
            at = begin + length
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {start}")
        if at > end or number == 0:
            raise ValueError(f"a record at byte {start} that ends past its parent")
        yield number, wire, start, begin, at


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    byte = raw[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    for place in range(at + 1, at + 10):
        byte = raw[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise ValueError(f"a number of more than ten bytes at byte {at}")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

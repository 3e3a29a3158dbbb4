"""Lines of a text file with their 0-based numbers, in bounded memory; and the kept number of what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from degarble.errors import TargetError

READ_BYTES = 1 << 18
MAX_LINE_BYTES = 16 << 20
"""A batch of events is some kilobytes; a longer line is skipped and told."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """Stands for a line that was not kept."""

    num_bytes_at_least: int


def read_lines(path: str) -> Iterator[tuple[int, bytes | TooLong]]:
    """Every line without its end. Raises TargetError if the file cannot be read."""
    try:
        with open(path, "rb") as stream:
            number, held = 0, bytearray()
            is_skipping = False
            while chunk := stream.read(READ_BYTES):
                first, *rest = chunk.split(b"\n")
                if not is_skipping:
                    held += first
                for piece in rest:
                    if not is_skipping:
                        yield number, bytes(held).rstrip(b"\r")
                    number += 1
                    is_skipping = False
                    held = bytearray(piece)
                if len(held) > MAX_LINE_BYTES:
                    yield number, TooLong(len(held))
                    held, is_skipping = bytearray(), True
            if held and not is_skipping:
                yield number, bytes(held).rstrip(b"\r")
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror or error}") from None


def shown(data: bytes | str, limit: int = 80) -> str:
    """The beginning of a line in printable letters."""
    text = ascii(data[:limit])
    return (text[2:-1] if isinstance(data, bytes) else text[1:-1]) + ("…" if len(data) > limit else "")

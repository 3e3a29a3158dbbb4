"""Server-sent events from bytes: what stands behind `data:`, however the network cut it, within a bound."""

from __future__ import annotations

MAX_LINE = 1 << 22
"""Bytes. An answer of a model has a few hundred in an event; without a bound an endpoint could fill the memory."""


class EventLines:
    """Feed it bytes; it gives the data of complete lines. Comments and other fields are passed over."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Raises ValueError for a line without an end."""
        self._held += data
        *lines, rest = self._held.replace(b"\r\n", b"\n").split(b"\n")
        if len(rest) > MAX_LINE:
            raise ValueError(f"a line of more than {MAX_LINE} bytes")
        self._held = bytearray(rest)
        return [bytes(line[5:].strip()) for line in lines if line.startswith(b"data:")]

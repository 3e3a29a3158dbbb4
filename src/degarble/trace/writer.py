"""Writes traces from inside an engine: less than a microsecond an event, one write a step.

An engine collects the events of a step in a list and hands it over once: the counter is filled in, the whole list is
encoded by one call and buffered. Nothing is written to the disk before BUFFER_BYTES are there, or `flush`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from degarble.trace.event import AnyEvent

BUFFER_BYTES = 1 << 20


class TraceWriter:
    """One file, one counter. Not for several threads at once: each writes its own file."""

    def __init__(self, path: str | Path) -> None:
        self._stream: BinaryIO = open(path, "wb")  # noqa: SIM115  (closed by `close`)
        self._encoder = msgspec.json.Encoder()
        self._buffer = bytearray()
        self._n = 0

    @property
    def num_events(self) -> int:
        """Events so far, which is the counter of the next one."""
        return self._n

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Append the events of one step in order; their `n` is set here."""
        n = self._n
        for event in events:
            event.n = n
            n += 1
        self._n = n
        buffer = self._buffer
        buffer += self._encoder.encode_lines(events)
        if len(buffer) >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._stream.write(self._buffer)
        self._buffer.clear()
        self._stream.flush()

    def close(self) -> None:
        """Flush and close."""
        if not self._stream.closed:
            self.flush()
            self._stream.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

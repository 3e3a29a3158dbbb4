"""New tensors on disk instead of in memory: a file without a name, which vanishes with the process."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping

from degarble.checkpoint.interface import Source
from degarble.checkpoint.rope import Segment, literal

SMALL_BYTES = 1 << 16
"""Below this, memory is cheaper than a file."""


class SpillFile(Source):
    """One growing file that segments point into. Readers may be several threads."""

    kind = "spill"

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._stream = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # lives as long as its segments
        self._size = 0
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        """It has none."""
        return "new data"

    def files(self) -> Mapping[str, int]:
        """The one file."""
        return {"": self._size}

    def keep(self, data: bytes) -> Segment:
        """Bytes as a segment: in memory if they are few, at the end of the file otherwise."""
        if len(data) < SMALL_BYTES:
            return literal(data)
        with self._lock:
            start = self._size
            self._stream.seek(start)
            self._stream.write(data)
            self._size += len(data)
        return Segment(len(data), None, "", start, self)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See Source."""
        with self._lock:
            self._stream.seek(start)
            return self._stream.read(-1 if length is None else length)

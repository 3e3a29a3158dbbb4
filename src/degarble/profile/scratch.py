"""Arrays that parts use again: fresh ones of megabytes cost as much in page faults as the sums made with them."""

from __future__ import annotations

from threading import local

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.code_stream import CodeStream


class Scratch(local):
    """Room for one part, each thread's own."""

    def __init__(self) -> None:
        self._indices = np.empty(0, np.intp)
        self._entries = np.empty(0, np.uint64)

    def indices(self, stream: CodeStream) -> Array:
        """The stream's units as numpy's own index type; valid until the next call."""
        size = stream.units.size
        if self._indices.size < size:
            self._indices = np.empty(size, np.intp)
        found = self._indices[:size]
        np.copyto(found.reshape(stream.units.shape), stream.units)
        return found

    def looked_up(self, table: Array, indices: Array) -> Array:
        """table[indices] for a table of uint64 that holds every index; valid until the next call."""
        if self._entries.size < indices.size:
            self._entries = np.empty(indices.size, np.uint64)
        return table.take(indices, mode="clip", out=self._entries[: indices.size])

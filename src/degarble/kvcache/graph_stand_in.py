"""A CUDA graph without CUDA: it records which bytes are read and written, and replays exactly these addresses.

What makes a graph dangerous is that a replay does not ask where things are now. This stand-in has that property: the
recorded operations name addresses in one flat memory, whatever was freed or moved there in the meantime.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from degarble.kvcache.graph_guard import Buffer

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


@dataclass(slots=True)
class GraphStandIn:
    """Scatter operations: row r of `rows` goes to slot slots[r] of `cache`."""

    memory: Bytes
    operations: list[tuple[Buffer, Buffer, Buffer, int]] = field(default_factory=list)

    def record(self, rows: Buffer, slots: Buffer, cache: Buffer, row_bytes: int) -> None:
        """Remember the addresses of rows (uint8), slots (int64) and cache."""
        self.operations.append((rows, slots, cache, row_bytes))

    def replay(self) -> None:
        """Read and write the recorded addresses. A negative slot counts from the end of the cache, as in an engine."""
        for rows, slots, cache, row_bytes in self.operations:
            numbers = self._bytes(slots).view(np.int64)
            source = self._bytes(rows).reshape(-1, row_bytes)
            target = self._bytes(cache).reshape(-1, row_bytes)
            for row, slot in enumerate(numbers.tolist()):
                target[slot] = source[row]

    def _bytes(self, buffer: Buffer) -> Bytes:
        return self.memory[buffer.address : buffer.address + buffer.nbytes]

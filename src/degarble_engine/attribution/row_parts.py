"""Rows of a matrix in blocks that stay in the processor's cache.

A temporary of 59 million values costs ten times as much to be mapped, page by page, as to be computed.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

BLOCK_VALUES = 1 << 18
"""Of a block: 1 MiB in fp32."""


def row_parts(matrix: Tensor, num_values: int = BLOCK_VALUES, within: slice | None = None) -> Iterator[slice]:
    """Half-open ranges of rows of about so many values, in order; of some rows only, or of all."""
    out, given = matrix.shape
    start, stop = (0, out) if within is None else (within.start, within.stop)
    size = max(1, num_values // max(1, given))
    yield from (slice(first, min(first + size, stop)) for first in range(start, stop, size))

"""How a tensor's bytes are cut for one pass: chunks that fit the cache, and lines inside them.

    tensor [rows, cols]     chunk = whole rows, about 2 MB        line = a row, or an equal share of one, up to 4 KB
    tensor [n], [n, 1] …    chunk = a run of numbers              line = 4 KB; the rest is a short line of its own

A maximum or a bitwise OR over each line is the smallest fact the pass keeps: rows, holes and whole tensors follow from
lines. Many small tensors of one shape make one chunk, so that the cost a tensor is a microsecond or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from degarble.checkpoint.interface import TensorInfo, element_bits, num_elements
from degarble.checkpoint.tensor_data import Array
from degarble.formats.gguf_types import GGML_TYPE_BY_NAME, GgmlType

CHUNK_BYTES = 1 << 21
"""Measured on two cores with 0.5 MB of L2 each: 0.25 to 4 MB stream equally well in one thread; in two, short calls
fight for the interpreter lock, and 2 MB is 1.4 times as fast as 1 MB."""
LINE_BYTES = 4096
MIN_ROW_BYTES = 64
"""Rows shorter than this are not told apart: `[out, 1]` scales, bitsandbytes' `[n, 1]` payload."""
GGUF = "GGUF:"


class Layout(msgspec.Struct, frozen=True):
    """How the tensors of one dtype and shape are cut."""

    num_rows: int
    row_bytes: int
    """0: rows are not told apart, the tensor is one run of bytes."""
    line_bytes: int
    nbytes: int

    @property
    def lines_per_row(self) -> int:
        """0 where rows are not told apart."""
        return self.row_bytes // self.line_bytes

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a full chunk: whole rows, or whole lines."""
        unit = self.row_bytes or self.line_bytes
        return max(1, CHUNK_BYTES // unit) * unit


class Chunk(msgspec.Struct, frozen=True):
    """Some bytes of one tensor, or all bytes of several of equal dtype and shape."""

    tensors: Sequence[TensorInfo]
    raw: Array
    """[tensors, lines, bytes of a line] uint8"""
    start: int
    """Byte offset in the tensor."""
    lines_per_row: int
    is_detailed: bool
    """Whether to count zeros, negatives and so on."""

    @property
    def num_rows(self) -> int:
        """Rows in the chunk of each tensor; a run of bytes counts as one, at its start only."""
        if self.lines_per_row:
            return int(self.raw.shape[1]) // self.lines_per_row
        return 1 if self.start == 0 else 0

    @property
    def first_row(self) -> int:
        """Index of the chunk's first row."""
        return self.start // (self.lines_per_row * self.raw.shape[2]) if self.lines_per_row else 0


def block_type(dtype: str) -> GgmlType | None:
    """The ggml type of a blocked GGUF dtype."""
    kind = GGML_TYPE_BY_NAME.get(dtype.removeprefix(GGUF)) if dtype.startswith(GGUF) else None
    return kind if kind is not None and kind.block_size > 1 else None


@lru_cache(maxsize=4096)
def stored_bytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes that dtype and shape ask for; None if the dtype is unknown or blocks do not fill the rows."""
    count = num_elements(shape)
    if not dtype.startswith(GGUF):
        bits = element_bits(dtype)
        return None if bits is None else -(-count * bits // 8)
    kind = GGML_TYPE_BY_NAME.get(dtype.removeprefix(GGUF))
    if kind is None or (kind.block_size > 1 and (not shape or shape[-1] % kind.block_size)):
        return None
    return count // kind.block_size * kind.type_size


def layout_of(shape: tuple[int, ...], nbytes: int, itemsize: int) -> Layout:
    """`itemsize`: bytes that must stay together, a number or a block."""
    rows = num_elements(shape[:-1]) if shape else 1
    row_bytes = nbytes // max(rows, 1)
    if row_bytes < MIN_ROW_BYTES or row_bytes > CHUNK_BYTES or row_bytes * rows != nbytes:
        line = max(1, LINE_BYTES // itemsize) * itemsize
        return Layout(num_rows=1, row_bytes=0, line_bytes=min(line, max(nbytes, 1)), nbytes=nbytes)
    return Layout(num_rows=rows, row_bytes=row_bytes, line_bytes=_line(row_bytes, itemsize), nbytes=nbytes)


def _line(row_bytes: int, itemsize: int) -> int:
    """The largest equal share of a row up to 4 KB that keeps items, and words of 8 bytes where it can, together."""
    unit = itemsize if itemsize % 8 == 0 else itemsize * 8 if row_bytes % (itemsize * 8) == 0 else itemsize
    items = row_bytes // unit
    for shares in range(-(-row_bytes // LINE_BYTES), min(items, 64) + 1):
        if shares and items % shares == 0:
            return row_bytes // shares
    return row_bytes

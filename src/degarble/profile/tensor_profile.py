"""TensorProfile: what one look at every byte of a stored tensor tells. Partial profiles of one tensor merge.

Rows are those of the stored tensor with its leading axes flattened, columns its last axis; a vector is one row. GGUF
blocks are columns too, and their numbers are those of the scales `d` (and minima) inside.
"""

from __future__ import annotations

from typing import Any

import msgspec

from degarble.checkpoint.tensor_data import Array

MAX_LISTED_ROWS = 65_536
"""More rows than this are counted, not listed."""

Place = tuple[int, int]
"""(row, column)"""

RowTops = tuple[tuple[int, Array], ...]


class RowSet(msgspec.Struct, frozen=True, gc=False):
    """Rows with some property: how many, and the first ones, ascending."""

    count: int = 0
    first: tuple[int, ...] = ()

    def merge(self, other: RowSet) -> RowSet:
        """Rows of either, which must be different ones."""
        if not other.count:
            return self
        if not self.count:
            return other
        listed = sorted(self.first + other.first)[:MAX_LISTED_ROWS]
        return RowSet(self.count + other.count, tuple(listed))


NO_ROWS = RowSet()


class ValueCounts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Closer look at scales, norms, biases and other tensors that are no large payload."""

    zeros: int = 0
    first_zero: Place | None = None
    negatives: int = 0
    """Below zero; minus zero is not."""
    first_negative: Place | None = None
    subnormals: int = 0
    first_subnormal: Place | None = None
    min_positive: float | None = None
    """Smallest number above zero."""

    def merge(self, other: ValueCounts) -> ValueCounts:
        """Counts of both."""
        return ValueCounts(
            zeros=self.zeros + other.zeros,
            first_zero=_first(self.first_zero, other.first_zero),
            negatives=self.negatives + other.negatives,
            first_negative=_first(self.first_negative, other.first_negative),
            subnormals=self.subnormals + other.subnormals,
            first_subnormal=_first(self.first_subnormal, other.first_subnormal),
            min_positive=_extreme(min, self.min_positive, other.min_positive),
        )


class TensorProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One stored tensor, or some of its rows."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_rows: int
    """Rows seen: all of them once the parts are merged."""
    count: int
    """Numbers seen (for GGUF blocks: scales and minima); 0 for integers and codes."""
    nonfinite: int = 0
    """Infinities and NaNs; for e8m0 the byte 255."""
    first_nonfinite: Place | None = None
    absmax: float | None = None
    """Largest finite magnitude; None where there is no number."""
    constant: int | None = None
    """The 64-bit pattern that fills the whole tensor; None if it varies."""
    zero_rows: RowSet = NO_ROWS
    """Rows of zeros. In GGUF blocks: all scales and minima zero; in bytes: all nibbles 0 or 8, the zeros of FP4."""
    constant_rows: RowSet = NO_ROWS
    """Rows of integers, codes or blocks that repeat one 64-bit pattern, zero included."""
    flat_bytes: int = 0
    """Bytes in stretches (about 4 KB) of zeros, or for integers and blocks of one repeated pattern: holes."""
    first_flat: int | None = None
    """Byte offset in the tensor of the first such stretch."""
    key: bytes = b""
    """Digest of the head, middle and tail: equal tensors have equal keys. See duplicates.py for proof."""
    counts: ValueCounts | None = None
    """None for large payloads and for integers."""
    sums: tuple[float, float] | None = None
    """Sum and sum of squares of the finite values, for vectors and single numbers."""
    row_tops: RowTops = ()
    """(first row, doubled magnitude bits of each row's largest value), for payloads of numbers; see float_bits.py."""

    @property
    def is_zero(self) -> bool:
        """Whether every byte is zero, or every number of either sign."""
        return self.constant == 0 or (self.count > 0 and self.zero_rows.count == self.num_rows)

    @property
    def mean(self) -> float | None:
        """Mean of the finite values of a vector."""
        if self.sums is None or self.count == self.nonfinite:
            return None
        return self.sums[0] / (self.count - self.nonfinite)

    @property
    def rms(self) -> float | None:
        """Root of the mean square of the finite values of a vector."""
        if self.sums is None or self.count == self.nonfinite:
            return None
        return float((self.sums[1] / (self.count - self.nonfinite)) ** 0.5)

    def __repr__(self) -> str:
        """Without the rows' numbers."""
        shown = (name for name in self.__struct_fields__ if name not in ("row_tops", "key"))
        return f"TensorProfile({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def merge(self, other: TensorProfile) -> TensorProfile:
        """Other rows of the same tensor joined to these; the order does not matter."""
        counts = self.counts.merge(other.counts) if self.counts and other.counts else self.counts or other.counts
        return TensorProfile(
            name=self.name,
            dtype=self.dtype,
            shape=self.shape,
            num_rows=self.num_rows + other.num_rows,
            count=self.count + other.count,
            nonfinite=self.nonfinite + other.nonfinite,
            first_nonfinite=_first(self.first_nonfinite, other.first_nonfinite),
            absmax=_extreme(max, self.absmax, other.absmax),
            constant=self.constant if self.constant == other.constant else None,
            zero_rows=self.zero_rows.merge(other.zero_rows),
            constant_rows=self.constant_rows.merge(other.constant_rows),
            flat_bytes=self.flat_bytes + other.flat_bytes,
            first_flat=_extreme(min, self.first_flat, other.first_flat),
            key=self.key or other.key,
            counts=counts,
            sums=_added(self.sums, other.sums),
            row_tops=tuple(sorted(self.row_tops + other.row_tops, key=lambda part: part[0])),
        )


def _first(left: Place | None, right: Place | None) -> Place | None:
    if left is None or right is None:
        return left or right
    return min(left, right)


def _extreme(choose: Any, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return choose(left, right)


def _added(left: tuple[float, float] | None, right: tuple[float, float] | None) -> tuple[float, float] | None:
    if left is None or right is None:
        return left or right
    return left[0] + right[0], left[1] + right[1]

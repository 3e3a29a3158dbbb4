"""The sums of `--exhaustive` as loops that numba compiles: the extra `fast`, never a need.

    numpy     table of 65,536 entries, four codes a look-up; counts of units; folds     1.4 ns a code
    numba     table of 256 entries, two codes a look-up, everything in one pass         0.55 ns a code

Both give the same integers (see group_sums.py for the table's fields); numpy's are the oracle of the tests, where the
loops below run as plain Python too. Importing numba takes half a second and the first compilation, which numba keeps
beside this file or in its own cache folder, several: `kernels_for` asks for them only where more is saved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.code_stream import CodeStream
from degarble.profile.group_sums import FIELDS, LONGEST, GroupSums, entries_of, half_size, longest_run
from degarble.profile.unit_counts import Spill

log = logging.getLogger(__name__)

WORTH_VALUES = 1 << 29
"""Fewer are summed by numpy before numba is imported."""
FOLLOWED = 0x0111111101111111
"""The lowest bit of every code that another one of its 32-bit word follows; two words."""
EACH = 0x1111111111111111
"""Multiplied by this, the top four bits hold the number of codes whose lowest bit is set, up to 15."""


class Kernels(msgspec.Struct, frozen=True):
    """`sum_bytes` and `count_spill`, compiled or not."""

    sum_bytes: Callable[..., None]
    count_spill: Callable[[Array], Spill]

    def sums(self, stream: CodeStream, size: int) -> tuple[GroupSums, Array] | None:
        """Sums over groups of `size` codes, and the histogram; None where `group_sums` gives none."""
        half, outputs, width = half_size(size), len(stream.units), stream.width
        codes = stream.units.shape[1] * 16 // width
        if half * width % 16 or codes % size:
            return None
        levels, per_byte = 1 << stream.num_bits, 8 // width
        fields = np.zeros((5, outputs, codes // size), np.int64)
        without, counts = np.zeros(2, np.int64), np.zeros((4, 256), np.int64)
        runs = np.array([size // half, half // per_byte, longest_run(half, per_byte, LONGEST[width]) // per_byte])
        table = _byte_entries(width, levels - 1)
        self.sum_bytes(stream.units.view(np.uint8), runs, table, _shifts_and_masks(width), fields, without, counts)
        halves = (int(without[0]), int(without[1])) if half < size else None
        return GroupSums(size, *fields, halves_without=halves), _levels(counts.sum(axis=0), width)[:levels]  # type: ignore[misc]

    def spill(self, stream: CodeStream) -> Spill:
        """Of 4-bit codes whose stream is the stored words themselves, and rows are whole pairs of words."""
        return self.count_spill(stream.units.reshape(-1).view("<u8"))


def sum_bytes(
    stored: Array, runs: Array, table: Array, layout: Array, fields: Array, without: Array, counts: Array
) -> None:
    """Bytes [outputs, bytes] -> fields [5, outputs, groups], half groups without extremes [2], counts [4, 256].

    `runs`: halves of a group, bytes of a half, bytes whose entries may be added. Counts are kept in four tables, as one
    byte's often waits for the byte before it.
    """
    first, second, third, fourth, low, middle, small = layout
    halves, half, run = runs
    for output in range(fields.shape[1]):
        row, at = stored[output], 0
        for group in range(fields.shape[2]):
            for _ in range(halves):
                total = squares = zeros = ones = tops = np.int64(0)
                for _ in range(half // run):
                    entry = np.uint64(0)
                    for place in range(run):
                        byte = row[at + place]
                        entry += table[byte]
                        counts[place & 3, byte] += 1
                    at += run
                    total += np.int64(entry & low)
                    squares += np.int64(entry >> first & middle)
                    zeros += np.int64(entry >> second & small)
                    ones += np.int64(entry >> third & small)
                    tops += np.int64(entry >> fourth)
                if zeros + tops == 0:
                    without[0] += 1
                    if ones == 0:
                        without[1] += 1
                fields[0, output, group] += total
                fields[1, output, group] += squares
                fields[2, output, group] += zeros
                fields[3, output, group] += ones
                fields[4, output, group] += tops


def count_spill(words: Array) -> Spill:
    """Pairs of words, [n] uint64 -> codes 0 that another code of their word follows, and how often that one is odd."""
    zeros = odd = np.int64(0)
    for index in range(words.size):
        word = words[index]
        any_bit = word | word >> np.uint64(1) | word >> np.uint64(2) | word >> np.uint64(3)
        is_zero = ~any_bit & np.uint64(FOLLOWED)
        is_odd = word >> np.uint64(4) & is_zero
        zeros += np.int64(is_zero * np.uint64(EACH) >> np.uint64(60))
        odd += np.int64(is_odd * np.uint64(EACH) >> np.uint64(60))
    return int(zeros), int(odd)


def kernels_for(num_values: int) -> Kernels | None:
    """Compiled ones where they pay and numba is installed, else None."""
    return compiled() if num_values >= WORTH_VALUES else None


@lru_cache(maxsize=1)
def compiled() -> Kernels | None:
    """None without numba, or with one that does not work with this numpy."""
    try:
        import numba
    except ImportError as error:
        log.debug("sums of codes by numpy: %s", error)
        return None
    log.debug("sums of codes by numba %s", numba.__version__)
    bytes_, words, table = (numba.types.Array(kind, axes, "C", readonly=True) for kind, axes in _inputs(numba.types))
    fields, matrix, line = (numba.types.Array(numba.int64, axes, "C") for axes in (3, 2, 1))
    sums = numba.void(bytes_, line, table, table, fields, line, matrix)
    spill = numba.types.UniTuple(numba.int64, 2)(words)
    return Kernels(_compiled(numba, sums, sum_bytes), _compiled(numba, spill, count_spill))


def _inputs(types: Any) -> tuple[tuple[Any, int], ...]:
    return (types.uint8, 2), (types.uint64, 1), (types.uint64, 1)


def _compiled(numba: Any, signature: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Kept on disk where numba finds a folder that it may write to."""
    try:
        return numba.njit(signature, nogil=True, cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        return numba.njit(signature, nogil=True)(function)  # type: ignore[no-any-return]


@lru_cache(maxsize=16)
def _byte_entries(width: int, top: int) -> Array:
    return entries_of(8, width, top)


@lru_cache(maxsize=2)
def _shifts_and_masks(width: int) -> Array:
    """Four shifts, and the masks of a sum, of a sum of squares, and of a count."""
    bits = FIELDS[width]
    masks = [(1 << number) - 1 for number in bits[:3]]
    return np.array([*list(accumulate(bits))[:4], *masks], np.uint64)


def _levels(counts: Array, width: int) -> Array:
    """Counts of bytes -> counts of codes."""
    by_nibble = counts.reshape(16, 16)
    return np.asarray(by_nibble.sum(axis=0) + by_nibble.sum(axis=1) if width == 4 else counts)

"""The sums of `--exhaustive` as loops that numba compiles: the extra `fast`, never a need.

    numpy     a table of 65,536 entries, four codes a look-up; counts of units; folds; a pass for every fact of groups
    numba     one pass over codes (code_loops.py) and one over the sums of groups (group_loop.py)

Both give the same integers and floats; numpy's are the oracle of the tests, where the loops run as plain Python too.
Importing numba takes half a second and the first compilation, which numba keeps beside those files or in its own cache
folder, several: `kernels_for` asks for them only where more is saved.
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
from degarble.profile import code_loops, group_loop
from degarble.profile.code_stream import CodeStream
from degarble.profile.code_sums import Ends
from degarble.profile.group_sums import FIELDS, LONGEST, GroupSums, entries_of, half_size, longest_run
from degarble.profile.unit_counts import Spill
from degarble.profile.value_sums import LARGEST, Moments

log = logging.getLogger(__name__)

WORTH_VALUES = 1 << 29
"""Fewer are summed by numpy before numba is imported."""


class Kernels(msgspec.Struct, frozen=True):
    """The loops of code_loops.py and group_loop.py, compiled or not."""

    sum_bytes: Callable[..., None] = code_loops.sum_bytes
    sum_planes: Callable[..., None] = code_loops.sum_planes
    count_spill: Callable[[Array], Spill] = code_loops.count_spill
    add_groups: Callable[..., Any] = group_loop.add_groups

    def sums(self, stream: CodeStream, size: int) -> tuple[GroupSums, Array] | None:
        """Sums over groups of `size` codes, and the histogram; None where `group_sums` gives none."""
        half, outputs, width = half_size(size), len(stream.units), stream.width
        codes = stream.units.shape[1] * 16 // width
        if half * width % 16 or codes % size:
            return None
        fields, without = np.zeros((5, outputs, codes // size), np.int64), np.zeros(2, np.int64)
        is_by_atoms = width == 4 and half % code_loops.ATOM == 0
        counts = (self._by_atoms if is_by_atoms else self._by_bytes)(stream, size // half, half, fields, without)
        halves = (int(without[0]), int(without[1])) if half < size else None
        return GroupSums(size, *fields, halves_without=halves), counts[: 1 << stream.num_bits]  # type: ignore[misc]

    def _by_atoms(self, stream: CodeStream, halves: int, half: int, fields: Array, without: Array) -> Array:
        """Fills `fields` and `without`; the histogram."""
        counts = np.zeros(code_loops.PLANES, np.int64)
        words = _words(stream).reshape(len(stream.units), -1, 4)
        self.sum_planes(words, np.array([halves, half // code_loops.ATOM, stream.last]), fields, without, counts)
        return code_loops.levels_of_planes(counts, stream.units.size * 4)

    def _by_bytes(self, stream: CodeStream, halves: int, half: int, fields: Array, without: Array) -> Array:
        """The same for all other groups."""
        width, per_byte, counts = stream.width, 8 // stream.width, np.zeros((4, 256), np.int64)
        runs = np.array([halves, half // per_byte, longest_run(half, per_byte, LONGEST[width]) // per_byte])
        table = _byte_entries(width, stream.last)
        self.sum_bytes(stream.units.view(np.uint8), runs, table, _shifts_and_masks(width), fields, without, counts)
        return _levels(counts.sum(axis=0), width)

    def facts(self, stream: CodeStream, groups: GroupSums, scales: Array, around: Array) -> tuple[Ends, Moments] | None:
        """`ends_of` and `moments_of` at once; None where a value may be no finite float32 number."""
        fields = (groups.total, groups.squares, groups.zeros, groups.ones, groups.tops)
        outputs = len(stream.units)
        rows, ends, facts = np.zeros((2, outputs)), np.zeros((2, outputs), np.int64), np.zeros(5, np.int64)
        layout = np.array([stream.width, stream.last, int(around.size > 1)])
        flat = [np.ascontiguousarray(one).reshape(-1) for one in (scales, around)]
        top = float(self.add_groups(stream.units.view(np.uint8), layout, fields, *flat, rows, ends, facts))
        if not top <= LARGEST:
            return None
        reached, both, reach_zero, *without = facts.tolist()
        return Ends(ends, reached, both, reach_zero, tuple(without)), Moments(rows[0], rows[1], top)

    def spill(self, stream: CodeStream) -> Spill:
        """Of 4-bit codes whose stream is the stored words themselves, and rows are whole pairs of words."""
        return self.count_spill(_words(stream))


def _words(stream: CodeStream) -> Array:
    """[n] uint64; a copy only where a file holds them at an odd place: loops are compiled for aligned numbers."""
    return np.require(stream.units.reshape(-1).view("<u8"), requirements="A")


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
    types = numba.types
    stored, lines, atoms, floats = (
        types.Array(kind, axes, "C", readonly=True)
        for kind, axes in ((types.uint8, 2), (types.uint64, 1), (types.uint64, 3), (types.float32, 1))
    )
    line, matrix, cube = (types.Array(types.int64, axes, "C") for axes in (1, 2, 3))
    rows = types.Array(types.float64, 2, "C")
    return Kernels(
        sum_bytes=_compiled(numba, types.void(stored, line, lines, lines, cube, line, matrix), code_loops.sum_bytes),
        sum_planes=_compiled(numba, types.void(atoms, line, cube, line, line), code_loops.sum_planes),
        count_spill=_compiled(numba, types.UniTuple(types.int64, 2)(lines), code_loops.count_spill),
        add_groups=_compiled(
            numba,
            types.float32(stored, line, types.UniTuple(matrix, 5), floats, floats, rows, matrix, line),
            group_loop.add_groups,
        ),
    )


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

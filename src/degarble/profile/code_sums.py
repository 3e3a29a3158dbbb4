"""CodeStats of a whole module, from sums over parts of its outputs; equal to codes.py's, bit by bit.

Which codes count as the lower end depends on all zero points of a module, which no part knows: both answers are kept
until the parts are put together.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import bits_of, shape_of
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.formats.packing import WORD_BITS
from degarble.profile.code_groups import has_zeros
from degarble.profile.codes import MIN_SPILL, lowest_end, rho_of, shift_facts
from degarble.profile.group_sums import GroupSums
from degarble.profile.module_profile import CodeStats
from degarble.profile.unit_counts import Spill


class CodeSums(msgspec.Struct, frozen=True):
    """What the codes of some outputs add up to, in groups of `size`."""

    num_bits: int
    size: int
    totals: Array
    """[outputs, groups] uint32 sums of codes"""
    zeros: Array | None
    """[outputs, groups] float32"""
    reached: int
    """Groups with the lowest or the highest code."""
    both: int
    reach_zero: int
    without: tuple[int, ...]
    """Groups without an extreme, where 0 alone is the lower end, and where 1 is as well."""
    halves_without: tuple[int, int] | None
    """The same of halves of groups, where groups have two."""
    shares: Array
    """[2, outputs] share of extremes in each output"""
    histogram: Array
    """[levels]"""
    spill: Spill | None


class Ends(msgspec.Struct, frozen=True):
    """How groups of some outputs reach the ends of the range."""

    by_output: Array
    """[2, outputs] int64 extremes, without and with code 1"""
    reached: int
    both: int
    reach_zero: int
    without: tuple[int, ...]
    """As in CodeSums."""


def ends_of(groups: GroupSums) -> Ends:
    """Counts of groups."""
    at_zero, at_top = groups.zeros > 0, groups.tops > 0
    at_low = at_zero | (groups.ones > 0)
    zeros, ones, tops = (one.sum(axis=1) for one in (groups.zeros, groups.ones, groups.tops))
    return Ends(
        by_output=np.stack([zeros + tops, zeros + tops + ones]),
        reached=int(np.count_nonzero(at_zero | at_top)),
        both=int(np.count_nonzero(at_zero & at_top)),
        reach_zero=int(np.count_nonzero(at_zero)),
        without=tuple(int(np.count_nonzero(~(low | at_top))) for low in (at_zero, at_low)),
    )


def code_sums(
    num_bits: int, groups: GroupSums, ends: Ends, zeros: Array | None, spill: Spill | None, histogram: Array
) -> CodeSums:
    """Zero points [outputs, groups] float32."""
    return CodeSums(
        num_bits=num_bits,
        size=groups.size,
        totals=groups.total.astype(np.uint32),
        zeros=zeros,
        reached=ends.reached,
        both=ends.both,
        reach_zero=ends.reach_zero,
        without=ends.without,
        halves_without=groups.halves_without,
        shares=ends.by_output / (groups.size * groups.total.shape[1]),
        histogram=histogram,
        spill=spill,
    )


def stats_of_codes(parts: Sequence[CodeSums]) -> CodeStats:
    """Parts in the order of outputs -> the module's statistics."""
    first = parts[0]
    totals = np.concatenate([part.totals for part in parts])
    known = [part.zeros for part in parts if part.zeros is not None]
    zeros = np.concatenate(known)[None] if known else None
    histogram = np.sum([part.histogram for part in parts], axis=0)
    middle = np.float32(1 << (first.num_bits - 1))
    medians = (
        None if has_zeros(zeros) else _median_shift(totals, first.size, middle if zeros is None else zeros.flat[0])
    )
    facts = shift_facts((totals / np.float32(first.size))[None], zeros, middle, medians)
    rho, rho_half = _rhos(parts, 1 if zeros is None else lowest_end(zeros), totals.size, histogram)
    spill, num_spill = _spill_share([part.spill for part in parts])
    return CodeStats(
        num_bits=first.num_bits,
        num_groups=totals.size,
        histogram=tuple(histogram.tolist()),
        extremes=sum(part.reached for part in parts) / totals.size,
        both_ends=sum(part.both for part in parts) / totals.size,
        reach_zero=sum(part.reach_zero for part in parts) / totals.size,
        rho=rho,
        rho_half=rho_half,
        spill=spill,
        num_spill=num_spill,
        **{name: column[0] for name, column in facts.items()},  # type: ignore[arg-type]
    )


def _median_shift(totals: Array, size: int, zero: np.float32) -> Array | None:
    """[1] median of total / size - zero. It rises with the total, so that totals can be counted and need no sorting.

    None where there would be more counts than totals.
    """
    if totals.max() > totals.size:
        return None
    up_to = np.bincount(totals.reshape(-1)).cumsum()
    middle = np.searchsorted(up_to, [(totals.size - 1) // 2, totals.size // 2], side="right").astype(np.uint32)
    low, high = middle / np.float32(size) - zero
    return np.array([low if totals.size % 2 else (low + high) / 2])


def _rhos(parts: Sequence[CodeSums], low: int, groups: int, histogram: Array) -> tuple[float | None, float | None]:
    """rho of groups and of their halves. `low`: the highest code that counts as the lower end."""
    size, is_known = parts[0].size, [bool(histogram[0] + histogram[-1] > 0)]
    shares = np.concatenate([part.shares[low] for part in parts])[None]
    without = sum(part.without[low] for part in parts)
    halves = [part.halves_without[low] for part in parts if part.halves_without is not None]
    rho = rho_of(1 - np.array([(groups - without) / groups]), shares, size, is_known)[0]
    if not halves:
        return rho, None
    reached = (2 * groups - sum(halves)) / (2 * groups)
    return rho, rho_of(1 - np.array([reached]), shares, size // 2, is_known)[0]


def _spill_share(parts: Sequence[Spill | None]) -> tuple[float | None, int]:
    known = [part for part in parts if part is not None]
    zeros, odd = sum(part[0] for part in known), sum(part[1] for part in known)
    return (odd / zeros if zeros >= MIN_SPILL else None), zeros


def spill_of(stacked: StoredModule) -> Spill | None:
    """Counted in the stored words, 16 codes of four bits at a time; None where `code_groups` gives no words."""
    payload, num_bits = stacked.payload, bits_of(stacked)
    if payload is None or payload.dtype not in ("I32", "U32") or WORD_BITS % num_bits or num_bits == 8:
        return None
    along = stacked.format.axes[PAYLOAD][1]
    if along is not None and along[1] != 1 and shape_of(stacked)[-1] % (WORD_BITS // num_bits):
        return None
    stored = stacked.array(PAYLOAD).reshape(-1)
    return spill_of_words(stored.view("<u8") if stored.size % 2 == 0 else stored.view("<u4"), num_bits)


def spill_of_words(words: Array, num_bits: int) -> Spill:
    """Words of 32 bits, one or two to a number."""
    kind = words.dtype.type
    places = range(0, 8 * words.itemsize, num_bits)
    lowest_bits = kind(sum(1 << at for at in places))
    followed = kind(sum(1 << at for at in places if at % WORD_BITS + num_bits < WORD_BITS))
    any_bit = words >> kind(1) if num_bits > 1 else words
    for bit in range(2, num_bits):
        any_bit |= words >> kind(bit)
    if num_bits > 1:
        any_bit |= words
    is_zero = np.bitwise_and(~any_bit, followed, out=any_bit)
    is_odd = np.bitwise_and(words >> kind(num_bits), lowest_bits)
    is_odd &= is_zero
    return _num_bits_set(is_zero), _num_bits_set(is_odd)


def _num_bits_set(words: Array) -> int:
    return int(np.bitwise_count(words).sum(dtype=np.int64))

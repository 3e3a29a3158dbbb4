"""Statistics of integer codes: what a group-wise quantiser leaves behind, and what damage does to it.

Every healthy group was scaled so that it reaches an end of the range, and its mean code lies at its zero point. So:

    mean code - zero point        0 on average; -1 or 1 if zero points are off by one
    corr(mean code, zero point)   near 1 for asymmetric schemes; near 0 if zero points belong to other columns
    groups without an extreme     rare; as many as chance allows if the groups are not the quantiser's groups

    rho(g) = share of groups of g codes without an extreme / mean over rows of (1 - share of extremes in the row)^g

is near 0 where g is the size that was used and about 1 where it is not. An extreme is the lowest or the highest code.
Where the zero point is the middle, 8 of 0 to 15, the range reaches one step further down than up: a group's largest
weight becomes 15, or 1, or by rounding 0. There 1 counts as an extreme as well. docs/calibration.md has the numbers;
the bounds stand with the rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.code_groups import has_zeros
from degarble.profile.median import median
from degarble.profile.module_profile import CodeStats

MIN_SPILL = 64
"""Fewer zero codes than this say nothing about what follows them."""


def code_stats(codes: Array, zeros: Array | None, num_bits: int, words: Array | None) -> list[CodeStats]:
    """Codes [modules, outputs, groups, group] uint8 from 0, zeros [modules, outputs, groups] -> one record a module.

    `words`: the codes in stored order, [modules, words, codes of a word], or None.
    """
    top = (1 << num_bits) - 1
    histograms = _histograms(codes, top + 1)
    means = codes.sum(axis=3, dtype=np.uint32) / np.float32(codes.shape[3])  # [modules, outputs, groups]
    facts: list[dict[str, list[Any]]] = [
        shift_facts(means, zeros, np.float32(1 << (num_bits - 1))),
        _extreme_facts(codes, top, histograms, _lowest_ends(zeros, len(codes))),
        _spill(words, len(codes)),
    ]
    columns = {name: column for fact in facts for name, column in fact.items()}
    return [
        CodeStats(
            num_bits=num_bits,
            num_groups=means[index].size,
            histogram=tuple(histograms[index].tolist()),
            **{name: column[index] for name, column in columns.items()},
        )
        for index in range(len(codes))
    ]


def _histograms(codes: Array, levels: int) -> Array:
    """[modules, levels]"""
    flat = codes.reshape(len(codes), -1)
    if flat.shape[1] >= 1 << 12:
        return np.stack([np.bincount(one, minlength=levels) for one in flat])
    shifted = flat + np.arange(len(flat), dtype=np.int32)[:, None] * levels
    return np.bincount(shifted.reshape(-1), minlength=levels * len(flat)).reshape(len(flat), levels)


def shift_facts(
    means: Array, zeros: Array | None, middle: np.float32, medians: Array | None = None
) -> dict[str, list[float | None]]:
    """Mean codes and zero points [modules, outputs, groups] -> fields of CodeStats, one number a module.

    `medians`: those of the shifts, where they are known.
    """
    shifts = means - (middle if zeros is None else zeros)
    rows = shifts.mean(axis=2)
    correlations = list(map(correlation, means, zeros)) if has_zeros(zeros) else [None] * len(means)  # type: ignore[arg-type]
    return {
        "shift": (median(shifts.reshape(len(shifts), -1)) if medians is None else medians).tolist(),
        "shift_up": (rows > 0.25).mean(axis=1).tolist(),
        "shift_down": (rows < -0.25).mean(axis=1).tolist(),
        "correlation": correlations,
    }


def lowest_end(zeros: Array | None) -> int:
    """The highest code that counts as the lower end, in a range that uses code 0. See the docstring of this file."""
    return 0 if has_zeros(zeros) else 1


def _lowest_ends(zeros: Array | None, count: int) -> Array:
    """One of each module, [modules, 1, 1, 1]."""
    ends = [1] * count if zeros is None else [lowest_end(one) for one in zeros]
    return np.array(ends, np.uint8).reshape(-1, 1, 1, 1)


def correlation(left: Array, right: Array) -> float | None:
    """Pearson's; None if either is constant or there are fewer than three numbers."""
    one, two = left.reshape(-1).astype(np.float64), right.reshape(-1).astype(np.float64)
    one, two = one - one.mean(), two - two.mean()
    norm = float(np.dot(one, one) * np.dot(two, two)) ** 0.5
    return float(np.dot(one, two)) / norm if norm > 0 and one.size > 2 else None


def _extreme_facts(codes: Array, top: int, histograms: Array, ends: Array) -> dict[str, list[float | None]]:
    size = codes.shape[3]
    parts = 2 if size % 2 == 0 and size >= 4 else 1  # each group as two halves
    split = codes.reshape(*codes.shape[:3], parts, size // parts)
    lowest, at_top = split.min(axis=4), split.max(axis=4) == top  # [modules, outputs, groups, parts]
    is_end = (lowest <= ends) | at_top
    zero, full = (lowest == 0).any(axis=3), at_top.any(axis=3)
    share = _share_of_extremes(codes, top, ends)
    is_known = (histograms[:, 0] + histograms[:, -1] > 0).tolist()
    rho = rho_of(1 - is_end.any(axis=3).mean(axis=(1, 2)), share, size, is_known)
    halves = is_end.mean(axis=(1, 2, 3))
    return {
        "extremes": (zero | full).mean(axis=(1, 2)).tolist(),
        "both_ends": (zero & full).mean(axis=(1, 2)).tolist(),
        "reach_zero": zero.mean(axis=(1, 2)).tolist(),
        "rho": rho,
        "rho_half": rho_of(1 - halves, share, size // 2, is_known) if parts == 2 else [None] * len(codes),
    }


def _share_of_extremes(codes: Array, top: int, ends: Array) -> Array:
    """[modules, outputs]. A module at a time, as its one end is a plain number then: numpy is ten times as fast with it."""
    is_extreme = codes == top
    for one, codes_of_one, end in zip(is_extreme, codes, ends.reshape(-1).tolist(), strict=True):
        one |= codes_of_one <= end
    return np.asarray(np.count_nonzero(is_extreme, axis=(2, 3)) / (codes.shape[2] * codes.shape[3]))


def rho_of(without: Array, share: Array, size: int, is_known: list[bool]) -> list[float | None]:
    """Shares of groups without an extreme [modules], shares of extremes [modules, outputs] -> rho(size).

    None where the file has no extreme code at all, or every code is one.
    """
    expected = ((1 - share) ** size).mean(axis=1)
    return [
        float(one / other) if known and other > 0 else None
        for one, other, known in zip(without, expected, is_known, strict=True)
    ]


def _spill(words: Array | None, count: int) -> dict[str, list[Any]]:
    if words is None:
        return {"spill": [None] * count, "num_spill": [0] * count}
    is_zero = words == 0
    is_zero[:, :, -1] = False  # what follows the last code of a word is another word
    is_odd = (words & 1).view(np.bool_).reshape(count, -1)
    flat = is_zero.reshape(count, -1)
    is_followed = flat[:, :-1] & is_odd[:, 1:]
    zeros = [int(np.count_nonzero(one)) for one in flat]
    odd = [int(np.count_nonzero(one)) for one in is_followed]
    shares = [one / all_of if all_of >= MIN_SPILL else None for one, all_of in zip(odd, zeros, strict=True)]
    return {"spill": shares, "num_spill": zeros}

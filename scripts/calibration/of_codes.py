"""Statistics of integer codes: WGT206, WGT207, WGT208, WGT210, WGT211."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scripts.calibration.statistic import CLOSE, Value, above, below, class_of

from degarble.checks.weights import codes_use_half_range as half
from degarble.checks.weights import codes_wrapped as wrapped
from degarble.checks.weights import group_size_misdeclared as groups
from degarble.checks.weights import zero_point_off_by_one as zeros
from degarble.checks.weights import zero_points_misordered as order
from degarble.evidence import Evidence
from degarble.evidence.second_look import INDEPENDENT, INDEPENDENT_WITH_ZEROS, WideCodes
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import CodeStats

ALONE = zeros.MAX_BITS_ALONE
NEAR = 1.2
"""CLOSE for a bound from below."""


def codes(evidence: Evidence) -> Iterator[tuple[StoredModule, CodeStats]]:
    """Every module with integer codes."""
    modules = evidence.get("modules")
    for name, profile in evidence.get("module_profiles").items():
        if profile.codes is not None and name in modules:
            yield modules[name], profile.codes


def wide(evidence: Evidence, module: StoredModule) -> WideCodes | None:
    """The second look."""
    found: WideCodes | None = evidence.get("second_look").codes(module)
    return found


@above("WGT206", "|median of (mean code - zero point)|, steps", zeros.MIN_SHIFT)
def shift(evidence: Evidence) -> Iterator[Value]:
    """Below 8 bits, modules that use both halves of the range."""
    for module, stats in codes(evidence):
        if stats.num_bits <= ALONE and zeros.HALF_USED < stats.upper_half < 1 - zeros.HALF_USED:
            found = abs(stats.shift)
            look = wide(evidence, module) if found > CLOSE * zeros.MIN_SHIFT else None
            yield Value(class_of(module), found if look is None else min(found, abs(look.stats.shift)), module.name)


@above("WGT206", "share of outputs shifted one way, where the median is above 0.25", zeros.MIN_SHARE)
def share_shifted(evidence: Evidence) -> Iterator[Value]:
    """Both conditions must hold; the second is looked at where the first is half met."""
    for module, stats in codes(evidence):
        if stats.num_bits <= ALONE and abs(stats.shift) > CLOSE * zeros.MIN_SHIFT:
            yield Value(class_of(module), stats.shift_up if stats.shift > 0 else stats.shift_down, module.name)


@above("WGT206", "|median over the modules of a file|, 8 bits", zeros.MIN_SHIFT)
def shift_of_file(evidence: Evidence) -> Iterator[Value]:
    """Eight bits are judged together."""
    found = [stats.shift for _, stats in codes(evidence) if stats.num_bits > ALONE]
    if len(found) >= zeros.MIN_VOTES:
        yield Value("8 bits, a file", abs(float(np.median(found))), "the file")


@below("WGT207", "correlation of mean code and zero point over groups", order.MIN_CORRELATION)
def correlation(evidence: Evidence) -> Iterator[Value]:
    """From 64 groups on, where zero points are not all alike."""
    for module, stats in codes(evidence):
        found = stats.correlation
        if found is None or stats.num_groups < order.MIN_GROUPS or (stats.rho or 0.0) > order.LOST_GROUPS:
            continue
        if found < 0.8:
            look = wide(evidence, module)
            if look is None or look.zero_spread < order.MIN_SPREAD or not look.is_telling:
                continue
            found = max(found, look.stats.correlation if look.stats.correlation is not None else 1.0)
        yield Value(class_of(module), found, module.name)


def _judged(evidence: Evidence) -> Iterator[tuple[StoredModule, CodeStats]]:
    return ((m, stats) for m, stats in codes(evidence) if groups._is_judged(m, stats))


def _rho(evidence: Evidence, *, has_zeros: bool, bound: float) -> Iterator[Value]:
    for module, stats in _judged(evidence):
        if stats.rho is None or (stats.correlation is not None) is not has_zeros:
            continue
        look = wide(evidence, module) if stats.rho > CLOSE * bound else None
        second = look.rho_by_size.get(look.size) if look is not None else None
        yield Value(class_of(module), stats.rho if second is None else min(stats.rho, second), module.name)


@above("WGT208", "rho at the stored size, one zero point", INDEPENDENT)
def rho_symmetric(evidence: Evidence) -> Iterator[Value]:
    """Groups without an extreme over those expected by chance."""
    yield from _rho(evidence, has_zeros=False, bound=INDEPENDENT)


@above("WGT208", "rho at the stored size, zero points", INDEPENDENT_WITH_ZEROS)
def rho_asymmetric(evidence: Evidence) -> Iterator[Value]:
    """The same."""
    yield from _rho(evidence, has_zeros=True, bound=INDEPENDENT_WITH_ZEROS)


def _rho_half(evidence: Evidence, *, has_zeros: bool) -> Iterator[Value]:
    bound = INDEPENDENT_WITH_ZEROS if has_zeros else INDEPENDENT
    for module, stats in _judged(evidence):
        if stats.rho_half is None or (stats.correlation is not None) is not has_zeros:
            continue
        found = stats.rho_half
        if found < bound * NEAR and (look := wide(evidence, module)) is not None:
            smaller = [rho for size, rho in look.rho_by_size.items() if size < look.size]
            found = max(found, min(smaller, default=found))
        yield Value(class_of(module), found, module.name)


@below("WGT208", "smallest rho below the stored size, one zero point", INDEPENDENT)
def rho_half_symmetric(evidence: Evidence) -> Iterator[Value]:
    """Smaller groups must not be the quantiser's."""
    yield from _rho_half(evidence, has_zeros=False)


@below(
    "WGT208", "smallest rho below the stored size, zero points (and a correlation below 0.8)", INDEPENDENT_WITH_ZEROS
)
def rho_half_asymmetric(evidence: Evidence) -> Iterator[Value]:
    """The same."""
    yield from _rho_half(evidence, has_zeros=True)


@above("WGT210", "|share of codes in the upper half - 0.5|", half.MAX_SHARE - 0.5)
def upper_half(evidence: Evidence) -> Iterator[Value]:
    """All integer codes."""
    for module, stats in codes(evidence):
        yield Value(class_of(module), abs(stats.upper_half - 0.5), module.name)


@above("WGT210", "codes unused at one end, eighths of the range", 1.0)
def unused_tail(evidence: Evidence) -> Iterator[Value]:
    """Where the groups reach the other end; in the second look, since a sample misses rare codes."""
    for module, stats in codes(evidence):
        if stats.num_bits < half.MIN_BITS_OF_TAIL or not any(stats.histogram) or stats.extremes <= half.REACHED:
            continue
        look = wide(evidence, module) if _unused(stats) > CLOSE else None
        yield Value(class_of(module), _unused(stats if look is None else look.stats), module.name)


def _unused(stats: CodeStats) -> float:
    used = [code for code, count in enumerate(stats.histogram) if count]
    return max(used[0], len(stats.histogram) - 1 - used[-1]) * half.TAIL_SHARE / len(stats.histogram)


def _ratios(evidence: Evidence) -> Iterator[tuple[StoredModule, float, CodeStats]]:
    """Module, ratio in the sample, and the statistics that decide."""
    for module, stats in codes(evidence):
        ratio = wrapped.ratio_of(stats)
        if stats.num_bits in wrapped.BITS and ratio is not None:
            look = wrapped.second(module, evidence.get("second_look")) if ratio > 0.2 else None
            if look is not None or ratio <= 0.2:
                yield module, ratio, look or stats


@above("WGT211", "log(lower / upper end), the milder look", wrapped.MAX_RATIO)
def uneven_ends(evidence: Evidence) -> Iterator[Value]:
    """Where fewer than 100 codes lie at the lower end of the second look, nothing is said."""
    for module, ratio, stats in _ratios(evidence):
        yield Value(class_of(module), min(ratio, wrapped.ratio_of(stats) or 0.0), module.name)


@above("WGT211", "both conditions: the smaller of log ratio / 0.3 and deviations / 5", 1.0)
def uneven_ends_combined(evidence: Evidence) -> Iterator[Value]:
    """Both must be met."""
    for module, ratio, stats in _ratios(evidence):
        number = min(ratio, wrapped.ratio_of(stats) or 0.0) / wrapped.MAX_RATIO
        yield Value(class_of(module), min(number, wrapped.deviations_of(stats) / wrapped.SURE_RATIO), module.name)


@above("WGT211", "share of odd codes after a 0", wrapped.MAX_SPILL)
def spill(evidence: Evidence) -> Iterator[Value]:
    """Over up to 256 Ki codes; 6 deviations are asked for as well."""
    for module, stats in codes(evidence):
        if stats.num_bits in wrapped.BITS and stats.spill is not None:
            look = wide(evidence, module) if stats.spill > 0.55 else None
            if look is not None and look.stats.num_spill < wrapped.MIN_ZEROS:
                continue
            second = look.stats.spill if look is not None else None
            yield Value(class_of(module), stats.spill if second is None else min(stats.spill, second), module.name)


@above("WGT211", "deviations of that share from one half, where it is above 0.57", wrapped.SURE_SPILL)
def spill_deviations(evidence: Evidence) -> Iterator[Value]:
    """Of the second look, where the first admits it."""
    for module, stats in codes(evidence):
        if stats.num_bits not in wrapped.BITS or stats.spill is None or stats.spill <= wrapped.MAX_SPILL:
            continue
        look = wide(evidence, module) if wrapped._deviations(stats) >= wrapped.WORTH_A_LOOK else None
        number = wrapped._deviations(stats)
        if look is not None and look.stats.spill is not None:
            number = wrapped._deviations(look.stats) if look.stats.spill > wrapped.MAX_SPILL else 0.0
        yield Value(class_of(module), number, module.name)

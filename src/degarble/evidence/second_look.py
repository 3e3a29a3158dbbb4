"""Evidence for a second look: when a sample of a module is suspicious, far more of it is read before anything is said.

Samples of 16 Ki values leave a statistic of codes 6 % uncertain; 256 Ki values leave less than 2 %.
"""

from __future__ import annotations

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.store import provides
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import can_slice, num_outputs, quantum, stack_outputs
from degarble.profile.code_groups import CodeGroups, code_groups
from degarble.profile.codes import code_stats, lowest_end
from degarble.profile.module_profile import CodeStats
from degarble.profile.sample import MIN_RUN, UNREADABLE, spread

MAX_VALUES = 1 << 18
MAX_REPEATS = 16
SIZES = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
"""Group sizes that are tried, in units of the stored one."""

INDEPENDENT = 0.3
"""rho of groups that are not the quantiser's, where there is one zero point."""

INDEPENDENT_WITH_ZEROS = 0.4
"""The same where zero points differ."""

TELLING = 1.2
"""Spread of zero points over the noise of mean codes: trained weights 2.0 and more, weights drawn evenly 0.7."""

MIN_EXPECTED = 8.0
"""Groups without an extreme that chance would leave; fewer cannot be told from none."""


class WideCodes(msgspec.Struct, frozen=True, kw_only=True):
    """The codes of most of one module."""

    stats: CodeStats
    zero_spread: float
    """Standard deviation of the zero points, in codes; 0 for symmetric schemes."""
    mean_noise: float
    """Standard deviation of a group's mean code if its codes were drawn at random, in codes."""
    repeats: int
    """Neighbouring groups that share one scale and zero point throughout."""
    size: int
    """Of a group, as stored."""
    rho_by_size: dict[int, float]
    """Group size -> groups without an extreme over those expected by chance; see profile/codes.py."""

    @property
    def is_telling(self) -> bool:
        """Whether zero points differ by more than chance moves mean codes; in evenly spread weights they do not."""
        return self.zero_spread >= TELLING * self.mean_noise

    @property
    def bound(self) -> float:
        """rho above which groups are not the quantiser's."""
        return INDEPENDENT_WITH_ZEROS if self.zero_spread else INDEPENDENT

    shuffled_by_size: dict[int, float]
    """The same over those expected if each row's codes were shuffled, which leaves every row its number of extremes."""

    @property
    def actual_size(self) -> int | None:
        """The smallest size whose groups reach the range's ends; None if none of those tried does.

        Larger groups hold more extremes by chance alone, so they have to beat a shuffled row.
        """
        smaller = [size for size, rho in self.rho_by_size.items() if rho < self.bound and size <= self.size]
        larger = [size for size, rho in self.shuffled_by_size.items() if rho < self.bound and size > self.size]
        return min((*smaller, *larger), default=None)


class SecondLook:
    """Reads a module again, once, when asked."""

    def __init__(self) -> None:
        self._codes: dict[str, WideCodes | None] = {}

    def codes(self, module: StoredModule) -> WideCodes | None:
        """Statistics of up to 256 Ki codes; None where they cannot be read."""
        if module.name not in self._codes:
            try:
                self._codes[module.name] = _wide_codes(module)
            except UNREADABLE:
                self._codes[module.name] = None
        return self._codes[module.name]


@provides("second_look")
def second_look() -> SecondLook:
    """Empty until a check has a suspicion."""
    return SecondLook()


def _wide_codes(module: StoredModule) -> WideCodes | None:
    groups = code_groups([module], stack_outputs([module], wide_runs(module)))
    if groups is None:
        return None
    rho_by_size, shuffled_by_size = _by_size(groups)
    stats = code_stats(groups.codes, groups.zeros, groups.num_bits, groups.words)[0]
    return WideCodes(
        stats=stats,
        zero_spread=float(groups.zeros.std()) if groups.zeros is not None else 0.0,
        mean_noise=float(groups.codes.std(axis=3).mean()) / groups.codes.shape[3] ** 0.5,
        repeats=_repeats(groups),
        size=groups.codes.shape[3],
        rho_by_size=rho_by_size,
        shuffled_by_size=shuffled_by_size,
    )


def _repeats(groups: CodeGroups) -> int:
    """Powers of two only: nobody divides groups otherwise."""
    found, factor = 1, 2
    while factor <= MAX_REPEATS and groups.scales.shape[2] % factor == 0 and groups.scales.shape[2] >= factor:
        if not all(_is_repeated(part, factor) for part in (groups.scales, groups.zeros) if part is not None):
            break
        found, factor = factor, factor * 2
    return found


def _is_repeated(values: Array, factor: int) -> bool:
    runs = values.reshape(*values.shape[:2], -1, factor)
    return bool((runs == runs[..., :1]).all())


def wide_runs(module: StoredModule, max_values: int = MAX_VALUES) -> tuple[tuple[int, int], ...]:
    """Half-open intervals of outputs with about so many values in them, evenly over all outputs."""
    if not can_slice(module):
        raise ValueError(f"{module.name}: its outputs cannot be cut")
    total, wanted = num_outputs(module), max(1, max_values // max(1, shape_of(module)[-1]))
    step = -(-MIN_RUN // quantum(module)) * quantum(module)
    return tuple(spread(total, wanted, step)) if wanted < total and step * 2 < total else ((0, total),)


def _by_size(groups: CodeGroups) -> tuple[dict[int, float], dict[int, float]]:
    """For every size that divides the inputs; extremes are those that the module itself reaches."""
    codes = groups.codes[0].reshape(groups.codes.shape[1], -1)  # [outputs, in]
    size, columns = groups.codes.shape[3], codes.shape[1]
    used = np.flatnonzero(np.bincount(codes.reshape(-1)) * 16 * size >= codes.size)  # one stray code is no end
    low = lowest_end(groups.zeros) if used[0] == 0 else used[0]
    flags = (codes <= low) | (codes == used[-1])
    extremes = flags.sum(axis=1)  # of each row
    by_chance: dict[int, float] = {}
    shuffled: dict[int, float] = {}
    for tried in (int(size * factor) for factor in SIZES):
        if tried < 4 or columns % tried:
            continue
        without = float((~flags.reshape(len(codes), -1, tried).any(axis=2)).mean())
        enough = MIN_EXPECTED * tried / codes.size
        if (expected := float(((1 - extremes / columns) ** tried).mean())) > enough:
            by_chance[tried] = without / expected
        if (expected := _missed_when_shuffled(extremes, columns, tried)) > enough:
            shuffled[tried] = without / expected
    return by_chance, shuffled


def _missed_when_shuffled(extremes: Array, columns: int, size: int) -> float:
    """Share of groups without any of a row's extremes, placed at random: hypergeometric."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, columns + 1)))])  # of factorials
    outside = columns - size
    fits = extremes <= outside
    count = np.where(fits, extremes, 0)
    missed = np.exp(logs[outside] - logs[outside - count] - logs[columns] + logs[columns - count])
    return float(np.where(fits, missed, 0.0).mean())

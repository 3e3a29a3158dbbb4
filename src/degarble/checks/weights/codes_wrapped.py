"""WGT211: codes that ran over the end of their range when they were packed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.evidence.second_look import SecondLook
from degarble.finding import Confidence, Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import CodeStats, ModuleProfile
from degarble.registry import Level, check

BITS = (3, 4)
"""Widths whose ends healthy tools use so evenly; 2 bits have too few codes, 8 bits too rarely an end."""
MAX_RATIO = 0.33
"""log of lowest over highest codes, asymmetric: 0.26 at most in healthy tensors, 0.44 and more with 25 % wrapped."""
MAX_ABOVE_PEERS = 0.40
"""The same for symmetric schemes, above the median of the file: healthy 0.37 at most."""
FILE_RATIO, FILE_REACH = -0.55, 0.9
"""A whole symmetric file: healthy medians -0.68 and below, unless the tool brings every group to code 0."""
MIN_PEERS = 8
MAX_SPILL, MIN_ZEROS, SURE_SPILL = 0.57, 400, 6.0
"""Share of odd codes after a 0 in a word, and by how many deviations of a fair coin it must stand out."""
WORTH_A_LOOK = 3.5
"""The same in the sample, for the module to be read again: a fair coin does in 1 of 4,300."""
MIN_CODES = 100
"""Codes at the lowest end, fewer of which make no ratio."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """One module, the statistic that shows it, and its bound."""

    module: StoredModule
    kind: str
    value: float
    bound: float


@check(
    "WGT211",
    confidence=Confidence.LIKELY,
    level=Level.CONTENT,
    symptom_of=("WGT204", "WGT210", *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING),
)
def codes_wrapped(
    modules: Modules, module_profiles: Mapping[str, ModuleProfile], second_look: SecondLook
) -> Iterator[Finding]:
    """Codes above the highest value wrapped to zero, or spilled into their neighbour, when they were packed.

    ## What it looks for
    A code of 16 cut to four bits becomes 0, so the lowest code gains what the highest loses. r = log(share of the
    lowest / share of the highest code): asymmetric healthy tensors 0.26 at most, reported above 0.33 (25 % of the top
    wrapped: 555 of 556 found, 32 % all; 0 of 636 healthy). Symmetric tools leave out an end, so a module is held
    against the others of its file: healthy 0.37 above their median at most, reported above 0.40 (2,480 of 2,480; 0 of
    700); and the file against what tools do: a median above -0.55 while fewer than 90 % of the groups reach code 0 (30
    of 33 files). An unmasked packer adds one to the next code in the word instead: codes after a 0 are odd in 43 to 55 %
    of cases, reported above 57 % and 6 standard deviations.

    ## Why output turns to garbage
    The largest weights of a group become its most negative ones: each error is the full range.

    ## What you will see
    From a slow loss of quality (2 % wrapped) to one token repeated (10 % and more).

    ## How to tell it from its look-alikes
    llama.cpp's Q4_0 and auto-round bring the largest magnitude of every group to code 0: healthy, and left out by the
    second condition; a whole auto-round file that wrapped cannot be told. Fewer than a quarter of the top codes wrapped
    stays below every bound.

    ## How to confirm
    Histogram of the unpacked codes: the lowest bin is far higher than the highest, and than its neighbour.

    ## How to repair it
    Quantise again with a packer that clamps before it packs (GPTQModel after PR 2963). Not safe unattended: which zeros
    were sixteens cannot be told from the file.

    ## References
    ModelCloud/GPTQModel#2963, intel/auto-round#2273
    """
    judged = [
        (modules[name], profile.codes)
        for name, profile in module_profiles.items()
        if name in modules and profile.codes is not None and profile.codes.num_bits in BITS
    ]
    with_zeros = [(module, stats) for module, stats in judged if stats.correlation is not None]
    symmetric = [(module, stats) for module, stats in judged if stats.correlation is None]
    found = {one.module.name: one for one in _spilled(judged, second_look)}
    for one in (*_asymmetric(with_zeros, second_look), *_above_peers(symmetric, second_look), *_whole_file(symmetric)):
        found.setdefault(one.module.name, one)
    yield from (_finding(one) for one in found.values())


def _ratio(stats: CodeStats) -> float | None:
    if not stats.histogram[-1] or not stats.histogram[0]:
        return None
    return math.log(stats.histogram[0] / stats.histogram[-1])


def _second_ratio(module: StoredModule, second_look: SecondLook) -> float | None:
    wide = second_look.codes(module)
    return _ratio(wide.stats) if wide is not None and wide.stats.histogram[0] >= MIN_CODES else None


def _asymmetric(judged: Sequence[tuple[StoredModule, CodeStats]], second_look: SecondLook) -> Iterator[Wrapped]:
    for module, stats in judged:
        first = _ratio(stats)
        if first is not None and first > MAX_RATIO:
            ratio = _second_ratio(module, second_look)
            if ratio is not None and ratio > MAX_RATIO:
                yield Wrapped(module, "wrap", ratio, MAX_RATIO)


def _above_peers(judged: Sequence[tuple[StoredModule, CodeStats]], second_look: SecondLook) -> Iterator[Wrapped]:
    ratios = {module.name: ratio for module, stats in judged if (ratio := _ratio(stats)) is not None}
    if len(ratios) < MIN_PEERS:
        return
    middle = float(np.median(list(ratios.values())))
    for module, _ in judged:
        if ratios.get(module.name, middle) - middle > MAX_ABOVE_PEERS:
            ratio = _second_ratio(module, second_look)
            if ratio is not None and ratio - middle > MAX_ABOVE_PEERS:
                yield Wrapped(module, "wrap", ratio, middle + MAX_ABOVE_PEERS)


def _whole_file(judged: Sequence[tuple[StoredModule, CodeStats]]) -> Iterator[Wrapped]:
    known = [(module, stats, ratio) for module, stats in judged if (ratio := _ratio(stats)) is not None]
    if len(known) < MIN_PEERS or len(known) < len(judged) / 2:
        return
    middle = float(np.median([ratio for _, _, ratio in known]))
    reached = float(np.median([stats.reach_zero for _, stats, _ in known]))
    if middle > FILE_RATIO and reached < FILE_REACH:
        yield from (Wrapped(module, "wrap", ratio, FILE_RATIO) for module, _, ratio in known if ratio > FILE_RATIO)


def _spilled(judged: Sequence[tuple[StoredModule, CodeStats]], second_look: SecondLook) -> Iterator[Wrapped]:
    for module, stats in judged:
        if stats.spill is None or stats.spill <= MAX_SPILL or _deviations(stats) < WORTH_A_LOOK:
            continue
        wide = second_look.codes(module)
        spill = wide.stats.spill if wide is not None and wide.stats.num_spill >= MIN_ZEROS else None
        if wide is None or spill is None or spill <= MAX_SPILL:
            continue
        if _deviations(wide.stats) > SURE_SPILL:
            yield Wrapped(module, "spill", spill, MAX_SPILL)


def _deviations(stats: CodeStats) -> float:
    """How many standard deviations of a fair coin the share of odd codes after a 0 stands out."""
    return 0.0 if stats.spill is None else (stats.spill - 0.5) * 2 * math.sqrt(stats.num_spill)


def _finding(one: Wrapped) -> Finding:
    texts = {
        "wrap": "the lowest code is too frequent beside the highest: log ratio",
        "spill": "codes after a 0 in their word are odd too often, as if a carry had run into them: share",
    }
    return Finding(
        location=one.module.place(),
        message=f"{one.module.any_part.name}: {texts[one.kind]} {one.value:.2f}, expected at most {one.bound:.2f}",
        measured={"log_ratio" if one.kind == "wrap" else "share_odd": round(one.value, 3)},
        bound={"max": round(one.bound, 3)},
        fix=Fix(id="requantize-module", safe=False),
        fold=one.kind,
    )

"""WGT211: codes that ran over the end of their range when they were packed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.evidence.second_look import SecondLook
from degarble.finding import Confidence, Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import CodeStats, ModuleProfile
from degarble.registry import Level, check

BITS = (3, 4)
"""Widths whose ends healthy tools use so evenly; 2 bits have too few codes, 8 bits too rarely an end."""
MAX_RATIO, SURE_RATIO = 0.3, 5.0
"""log of the lowest over the highest codes, and its deviations from 0; a quarter of the top wrapped gives 0.51."""
MAX_SPILL, MIN_ZEROS, SURE_SPILL = 0.57, 400, 6.0
"""Share of odd codes after a 0 in a word, and by how many deviations of a fair coin it must stand out."""
WORTH_A_LOOK = 3.5
"""The same in the sample, for the module to be read again: a fair coin does in 1 of 4,300."""
MIN_CODES = 100
"""Codes at the lowest end, fewer of which make no ratio."""


class Wrapped(msgspec.Struct, frozen=True):
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
    A code of 16 cut to four bits becomes 0, so the lowest code gains what the highest loses. r is the log of the lowest
    over the highest code's share. With zero points both ends are alike. With one zero point in the middle, 8 of 0 to
    15, the highest code stands for what 0 and 1 stand for on the other side, whatever the step and however far it
    clips: so the two are added. Tools that bring the largest weight of every group to code 0 have one 0 more in each,
    which is taken off. r is then 0 but for chance: 0.21 at most in healthy tensors (9,552 of 59 checkpoints:
    docs/calibration.md). Reported above 0.3 and 5 deviations, in a sample and again in up to 256 Ki codes; a quarter of
    the top wrapped gives 0.51. An unmasked packer adds one to the next code in the word instead: codes after a 0 are
    odd in half of the cases, reported above 57 % and 6 standard deviations.

    ## Why output turns to garbage
    The largest weights of a group become its most negative ones: each error is the full range.

    ## What you will see
    From a slow loss of quality (2 % wrapped) to one token repeated (10 % and more).

    ## How to tell it from its look-alikes
    llama.cpp's Q4_0 and auto-round bring the largest magnitude of every group to code 0, and symmetric tools reach code
    0 in a quarter of the groups: both healthy, and allowed for. Clipping fills both ends alike. Less than a sixth of
    the top codes wrapped stays below the bound.

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
    found = {one.module.name: one for one in _spilled(judged, second_look)}
    for one in _uneven(judged, second_look):
        found.setdefault(one.module.name, one)
    yield from (_finding(one) for one in found.values())


def ends(stats: CodeStats) -> tuple[int, int]:
    """Codes at the lower end and at the upper one that healthy weights fill alike; see the page."""
    low = stats.histogram[0]
    if stats.correlation is None:
        low += stats.histogram[1]
    if stats.has_signed_scales:
        low -= stats.num_groups
    return low, stats.histogram[-1]


def ratio_of(stats: CodeStats) -> float | None:
    """log of the lower over the upper end; None where the file does not use both."""
    low, high = ends(stats)
    return math.log(low / high) if stats.histogram[0] and low > 0 and high else None


def deviations_of(stats: CodeStats) -> float:
    """How many standard deviations the ratio lies above 0, if codes fell independently."""
    low, high = ends(stats)
    return (ratio_of(stats) or 0.0) / math.sqrt(1 / max(low, 1) + 1 / max(high, 1))


def second(module: StoredModule, second_look: SecondLook) -> CodeStats | None:
    """Far more codes, if enough of them lie at the lower end."""
    wide = second_look.codes(module)
    return wide.stats if wide is not None and ends(wide.stats)[0] >= MIN_CODES else None


def _uneven(judged: Sequence[tuple[StoredModule, CodeStats]], second_look: SecondLook) -> Iterator[Wrapped]:
    for module, stats in judged:
        if (ratio_of(stats) or 0.0) <= MAX_RATIO:
            continue
        wide = second(module, second_look)
        ratio = ratio_of(wide) if wide is not None else None
        if wide is not None and ratio is not None and ratio > MAX_RATIO and deviations_of(wide) > SURE_RATIO:
            yield Wrapped(module, "wrap", ratio, MAX_RATIO)


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

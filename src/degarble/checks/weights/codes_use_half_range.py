"""WGT210: integer codes that never use one half of their range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.evidence.second_look import SecondLook
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import CodeStats, ModuleProfile
from degarble.registry import Level, check

MAX_SHARE = 0.98
MIN_BITS_OF_TAIL = 3
TAIL_SHARE = 8
"""More than an eighth of the codes, unused at one end, is a tail: symmetric tools leave out one code of 16."""
REACHED = 0.5
"""Share of groups that must reach the other end before an unused tail says anything."""
EXPLAINED_BY = ("WGT204", *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING)


@check("WGT210", confidence=Confidence.LIKELY, level=Level.CONTENT, symptom_of=EXPLAINED_BY)
def codes_use_half_range(
    modules: Modules, module_profiles: Mapping[str, ModuleProfile], second_look: SecondLook
) -> Iterator[Finding]:
    """Integer codes of a weight use only the lower or only the upper half of their range.

    ## What it looks for
    The share of codes in the upper half of the range: within 0.23 of one half in healthy tensors of 3 bits and more,
    0.29 at 2 bits. Reported below 0.02 and above 0.98; planted faults have 0 or 1. Measured on 12,969 tensors of 83
    checkpoints: docs/calibration.md. In schemes of 3 bits and more a warning, where three codes of sixteen at one end
    never occur although the groups reach the other end.

    ## Why output turns to garbage
    Somewhere in the export, unsigned codes 0 to 15 were taken for signed ones and clamped to 7, or signed ones to 0.
    Half of all weights then have the value of the middle: everything above, or below, is cut off.

    ## What you will see
    One ordinary token repeated, from the first step on (perplexity 100,000,000).

    ## How to tell it from its look-alikes
    Symmetric tools that round to -7..7 leave one code unused, which is healthy, as is -127..127 in 8 bits. A matrix of
    one single code is WGT204. Clamping moves the mean as well, so that WGT206 would see it: this rule explains that.

    ## How to confirm
    Histogram of the unpacked codes: half of the bins are empty.

    ## How to repair it
    Export again with a tool that keeps codes unsigned (auto-round after PR 2273). The cut values cannot be recovered.

    ## References
    intel/auto-round#2273
    """
    for name, profile in module_profiles.items():
        module, stats = modules.get(name), profile.codes
        if module is None or stats is None or (_half(stats) is None and _tail(stats) is None):
            continue
        wide = second_look.codes(module)
        if wide is None or sum(count > 0 for count in wide.stats.histogram) < 2:
            continue
        half, tail = _half(wide.stats), _tail(wide.stats)
        if half is not None:
            yield _half_finding(module, wide.stats, half)
        elif tail is not None:
            yield _tail_finding(module, wide.stats, tail)


def _half(stats: CodeStats) -> str | None:
    share = stats.upper_half
    return "lower" if share < 1 - MAX_SHARE else "upper" if share > MAX_SHARE else None


def _tail(stats: CodeStats) -> str | None:
    """The end of the range that nothing reaches; 'upper' or 'lower'."""
    if stats.num_bits < MIN_BITS_OF_TAIL or not any(stats.histogram):
        return None
    used = [code for code, count in enumerate(stats.histogram) if count]
    low, high = used[0], len(stats.histogram) - 1 - used[-1]
    unused = max(low, high)
    if unused * TAIL_SHARE <= len(stats.histogram) or min(low, high) * TAIL_SHARE > len(stats.histogram):
        return None
    return ("lower" if low > high else "upper") if stats.extremes > REACHED else None


def _half_finding(module: StoredModule, stats: CodeStats, half: str) -> Finding:
    other = "upper" if half == "lower" else "lower"
    return Finding(
        location=module.place(),
        message=f"{module.any_part.name}: {stats.upper_half:.1%} of the codes lie in the upper half of 0.."
        f"{len(stats.histogram) - 1}, expected about half: the {other} half was cut off",
        measured={"share_upper_half": round(stats.upper_half, 4)},
        bound={"min": round(1 - MAX_SHARE, 2), "max": MAX_SHARE},
        fix=Fix(id="requantize-module", safe=False),
        predicts="one ordinary token repeated",
        fold=f"{half} half",
    )


def _tail_finding(module: StoredModule, stats: CodeStats, tail: str) -> Finding:
    used = [code for code, count in enumerate(stats.histogram) if count]
    return Finding(
        location=module.place(),
        message=f"{module.any_part.name}: codes lie between {used[0]} and {used[-1]} of 0..{len(stats.histogram) - 1}, "
        f"and the {tail} end is never reached",
        severity=Severity.WARNING,
        measured={"lowest": used[0], "highest": used[-1]},
        bound={"unused_max": len(stats.histogram) // TAIL_SHARE},
        fix=Fix(id="requantize-module", safe=False),
        fold=f"{tail} tail",
    )

"""WGT207: zero points that belong to other groups than the codes beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.evidence.second_look import SecondLook
from degarble.finding import Confidence, Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import CodeStats, ModuleProfile
from degarble.registry import Level, check

MIN_CORRELATION = 0.6
MIN_GROUPS = 64
"""Fewer groups leave too much to chance: 0.72 is the lowest seen with 64, in weights of random numbers."""
MIN_SPREAD = 0.4
"""Standard deviation of the zero points, in codes: nearly equal ones correlate with nothing."""
LOST_GROUPS = 0.4
"""Groups that do not reach the range's ends are no groups at all: WGT208."""


@check(
    "WGT207",
    confidence=Confidence.LIKELY,
    level=Level.CONTENT,
    symptom_of=("WGT208", "WGT209", "WGT210", "WGT211", *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING),
)
def zero_points_misordered(
    modules: Modules, module_profiles: Mapping[str, ModuleProfile], second_look: SecondLook
) -> Iterator[Finding]:
    """Zero points belong to other outputs or groups than the codes beside them.

    ## What it looks for
    In asymmetric schemes a group whose weights lean to one side has its zero point on that side, so the mean code of a
    group follows its zero point: the correlation over groups is 0.80 or more in healthy tensors (0.93 in the middle).
    Codes and zero points in different orders (an AWQ order undone on one side only, a reversed or rolled table) leave
    0.37 at most. Reported below 0.6, from 64 groups on. Measured on 5,824 tensors of 35 checkpoints:
    docs/calibration.md.

    ## Why output turns to garbage
    Each group is decoded with the zero point of another. The error is a constant of several steps for every group, far
    larger than rounding.

    ## What you will see
    Tokens of many scripts in no order; in one layer alone, a loss of quality that still answers short questions.

    ## How to tell it from its look-alikes
    Symmetric schemes have equal zero points, and are not judged. Groups of the wrong size or inputs in the wrong order
    (WGT208) lower the correlation too, but then codes do not reach the ends of their range in every group. If the codes
    and not the zero points were reordered, WGT209 says so and explains this. Random weights correlate as trained ones,
    but for those drawn evenly from an interval: there all zero points are about the same, and nothing is said.

    ## How to confirm
    Unpack codes and zero points, take the mean code of each group and correlate; then try the zero points with the
    columns of every eight in the order 0 2 4 6 1 3 5 7 and in its inverse.

    ## How to repair it
    Pack the zero points again in the order that the codes have. Not safe unattended: the statistic shows that the two
    disagree, not which of them is right.

    ## References
    amd/Quark#30, vllm-project/vllm#48552, casper-hansen/AutoAWQ#101
    """
    for name, profile in module_profiles.items():
        module = modules.get(name)
        if module is None or profile.codes is None or not _is_suspicious(profile.codes):
            continue
        wide = second_look.codes(module)
        if wide is not None and wide.zero_spread >= MIN_SPREAD and wide.is_telling and _is_suspicious(wide.stats):
            yield _finding(module, wide.stats)


def _is_suspicious(stats: CodeStats) -> bool:
    is_low = stats.correlation is not None and stats.correlation < MIN_CORRELATION
    return is_low and stats.num_groups >= MIN_GROUPS and (stats.rho or 0.0) <= LOST_GROUPS


def _finding(module: StoredModule, stats: CodeStats) -> Finding:
    info = module.part("zero_point") or module.part("offset") or module.any_part
    role = next((role for role in ("zero_point", "offset") if module.part(role) is not None), "payload")
    return Finding(
        location=module.place(role),
        message=f"{info.name}: zero points do not follow the codes of their groups: correlation "
        f"{stats.correlation or 0.0:.2f} over {stats.num_groups} groups, expected above {MIN_CORRELATION}",
        measured={"correlation": round(stats.correlation or 0.0, 3), "groups": stats.num_groups},
        bound={"correlation_min": MIN_CORRELATION},
        fix=Fix(id="reorder-zero-points", safe=False),
        fold="zero points",
    )

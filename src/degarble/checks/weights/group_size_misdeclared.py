"""WGT208: codes that were quantised in other groups than those their scales stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from degarble.checks.weights.blame import config_place, is_in_config
from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.evidence.second_look import INDEPENDENT, INDEPENDENT_WITH_ZEROS, SecondLook, WideCodes
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import group_size
from degarble.methods.interface import Declaration
from degarble.profile.module_profile import CodeStats, ModuleProfile
from degarble.registry import Level, check

MAX_BITS = 4
"""At eight bits the groups of many tools miss the ends of the range by rounding."""
MIN_GROUPS = 64
LOW_CORRELATION = 0.8
"""With zero points, groups that are too large blur them: 0.63 to 0.76, healthy 0.83 and more."""
EXPLAINED_BY = ("WGT204", "WGT206", "WGT209", "QNT113", *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING)


class Verdict(msgspec.Struct, frozen=True):
    """One module whose groups are not the quantiser's."""

    module: StoredModule
    codes: WideCodes
    actual: int | None
    """The size in which its codes were quantised; None if no size fits."""

    @property
    def is_repeated(self) -> bool:
        """Whether finer groups only repeat the scales of the real ones: decoded weights are right."""
        return self.actual is not None and self.codes.repeats * self.codes.size >= self.actual

    @property
    def text(self) -> str:
        """What was found, in words."""
        size, actual = self.codes.size, self.actual
        rho = f"{self.codes.rho_by_size.get(size, 0.0):.2f} of the groups that chance would leave miss both ends"
        if actual is None:
            return (
                f"groups of {size} reach the ends of the range no more often than chance ({rho}), and no other size "
                "does: the inputs are not in the order in which they were grouped"
            )
        if actual > size:
            return f"stored in groups of {size}, but the codes were quantised in groups of {actual} ({rho} at {size})"
        return (
            f"stored in groups of {size}, but groups of {actual} already reach the ends of the range "
            f"({self.codes.rho_by_size.get(actual, 0.0):.2f} of what chance would leave do not, expected above "
            f"{self.codes.bound}): the codes were quantised in groups of {actual}"
        )


@check("WGT208", confidence=Confidence.LIKELY, level=Level.CONTENT, symptom_of=EXPLAINED_BY)
def group_size_misdeclared(
    modules: Modules,
    module_profiles: Mapping[str, ModuleProfile],
    second_look: SecondLook,
    declaration: Declaration | None = None,
) -> Iterator[Finding]:
    """Codes were quantised in groups of another size, or in another order, than the stored scales stand for.

    ## What it looks for
    A quantiser stretches every group so that it reaches an end of the range: the lowest code, the highest, or where the
    zero point is the middle also code 1, which is as far from it as the highest. How many groups do not, over the
    number that chance would leave if extremes fell anywhere in a row, is 0.11 at most at the real size, and about 1 at
    any smaller size or in another order (0.39 and more of tensors whose inputs were shuffled). Reported above 0.3 (0.4
    with zero points), or where a smaller size would do: below the same bounds (healthy 0.48 and more), and with zero
    points also a correlation of mean code and zero point below 0.8. The real size is found by trying. Measured on 9,552
    tensors of 59 checkpoints: docs/calibration.md.

    ## Why output turns to garbage
    Each code is multiplied with the scale of a group that it was not made for. Shapes fit, since a table of scales has
    the same form for any size that divides the inputs, and a lost `g_idx` leaves no trace in shapes at all.

    ## What you will see
    Nonsense in all positions: group 64 read as 32 raises a perplexity of 9 to 26,000, an activation order that is
    ignored to 17,000,000.

    ## How to tell it from its look-alikes
    Where finer groups only repeat the scales of the real ones, weights are decoded rightly: a warning, since the file
    is larger and other kernels are chosen. GGUF blocks are left out. Tools that never use the last code of a symmetric
    range are judged by the codes they do use, and scales that were rounded up, so that the largest weight misses code
    0, are allowed for. At 8 bits nothing is said. A config that contradicts the shapes is QNT104. Not told apart: a
    tool that fits scales to the codes after rounding, and leaves groups that reach no end though nothing is wrong (an
    early `degarble quantize` did, 0.35 to 1.4 in some `q_proj`; it closes such ranges now).

    ## How to confirm
    Take one row of codes: in groups of the named size nearly every group holds the lowest or the highest code.

    ## How to repair it
    If the scales repeat: keep one of each run and write the real size; safe unattended. Otherwise the table of scales
    is not that of these codes: take it, or the group index, from the source of the checkpoint. Not safe unattended.

    ## References
    turboderp/exllama#44, vllm-project/vllm#7374, ModelCloud/GPTQModel#1485
    """
    judged = [
        (modules[name], profile.codes)
        for name, profile in module_profiles.items()
        if name in modules and profile.codes is not None and _is_judged(modules[name], profile.codes)
    ]
    found = [
        (module, wide)
        for module, stats in judged
        if _is_suspicious(stats) and (wide := second_look.codes(module)) is not None and _is_wrong(wide)
    ]
    yield from _findings(_verdicts(found), len(judged), declaration)


def _is_judged(module: StoredModule, stats: CodeStats) -> bool:
    """GGUF blocks carry their scale with them, and llama.cpp searches for one that need not reach an end."""
    shape = module.form.shape
    is_grouped = shape is not None and group_size(module) <= shape[-1] and module.form.format != "gguf"
    return stats.num_bits <= MAX_BITS and stats.num_groups >= MIN_GROUPS and is_grouped


def _is_suspicious(stats: CodeStats) -> bool:
    has_zeros = stats.correlation is not None
    bound = INDEPENDENT_WITH_ZEROS if has_zeros else INDEPENDENT
    is_lost = stats.rho is not None and stats.rho > bound
    is_coarse = stats.rho_half is not None and stats.rho_half < bound
    return is_lost or is_coarse


def _is_wrong(wide: WideCodes) -> bool:
    rho, actual = wide.rho_by_size.get(wide.size), wide.actual_size
    if actual is None or actual > wide.size:
        return rho is not None and rho > wide.bound
    if actual == wide.size or (rho is None and actual * 2 != wide.size):
        return False
    correlation = wide.stats.correlation
    return not wide.zero_spread or correlation is None or (wide.is_telling and correlation < LOW_CORRELATION)


def _verdicts(found: Sequence[tuple[StoredModule, WideCodes]]) -> list[Verdict]:
    """Rows of few groups leave the size of one module open: then the others' decides, if most have one."""
    sizes = Counter(wide.actual_size for _, wide in found if wide.actual_size is not None)
    usual = sizes.most_common(1)[0][0] if sizes.total() * 2 >= len(found) > 1 else None
    return [
        Verdict(module, wide, usual or (wide.actual_size if sizes.total() * 2 >= len(found) else None))
        for module, wide in found
    ]


def _findings(found: Sequence[Verdict], judged: int, declaration: Declaration | None) -> Iterator[Finding]:
    sized = sum(one.actual is not None for one in found)
    for one in found:
        place = one.module.place("scale" if one.actual is not None else "payload")
        if one.actual is not None and declaration is not None and is_in_config(sized, judged, declaration):
            place = config_place(declaration, one.module, "group_size", "scale")
        yield Finding(
            location=place,
            message=f"{one.module.name}: {one.text}",
            severity=Severity.WARNING if one.is_repeated else None,
            measured={
                "rho": round(one.codes.rho_by_size.get(one.codes.size, 0.0), 3),
                "actual_group_size": one.actual,
                "group_size": one.codes.size,
            },
            bound={"rho_max": one.codes.bound},
            fix=Fix(id="write-group-size" if one.is_repeated else "regroup-scales", safe=one.is_repeated),
            fold=f"groups of {one.actual}" if one.actual is not None else "order lost",
        )

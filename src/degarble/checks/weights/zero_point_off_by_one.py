"""WGT206: zero points that are one too high or too low."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from degarble.checks.weights.blame import config_place, is_in_config
from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.evidence.second_look import SecondLook
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.methods.interface import Declaration
from degarble.profile.module_profile import CodeStats, ModuleProfile
from degarble.registry import Level, check

MIN_SHIFT, MAX_SHIFT = 0.5, 1.5
MIN_SHARE = 0.8
"""Of outputs that are shifted the same way: healthy 0.64 at most, faulty 0.995 at least."""
SURE_SHIFT = 0.75
"""A lone module of real zero points off by one has 0.91 or more; weights with a mean of their own reach 0.67."""
HALF_USED = 0.02
MIN_VOTES = 8
MAX_BITS_ALONE = 7
"""One step of eight bits is small beside the mean of a row: there only all modules together tell."""

V1, V2 = "gptq", "gptq_v2"


class Shifted(msgspec.Struct, frozen=True):
    """One module and how far its codes lie from its zero points."""

    module: StoredModule
    shift: float
    share: float


@check(
    "WGT206",
    confidence=Confidence.LIKELY,
    level=Level.CONTENT,
    symptom_of=("WGT210", "WGT211", *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING),
)
def zero_point_off_by_one(
    modules: Modules,
    module_profiles: Mapping[str, ModuleProfile],
    second_look: SecondLook,
    declaration: Declaration | None = None,
) -> Iterator[Finding]:
    """Zero points are one too high or one too low, so that every weight is shifted by one step.

    ## What it looks for
    Trained weights have no mean to speak of, so the mean code of a group lies at its zero point. The median over groups
    of (mean code - zero point) is 0.00 with 0.13 at most in healthy tensors, 0.28 where a tool brings the largest
    weight of every group to code 0; off by one it is -1 or 1. Reported above 0.5, where 80 % of the outputs are shifted
    the same way. Measured on 10,196 tensors of 63 checkpoints: docs/calibration.md. Below 8 bits each module is judged
    alone, at 8 bits all of them together. If most modules are shifted as the other GPTQ version would read them, the
    label is named, else the tensors.

    ## Why output turns to garbage
    GPTQ v1 stores the zero point minus one, v2 stores it as it is; the two look alike and only a label tells them
    apart. Read by the wrong rule, every weight of a matrix moves by one step in the same direction, which adds the sum
    of all inputs to every output.

    ## What you will see
    One ordinary token repeated ("cercercerc"). Even one layer of thirty is enough (perplexity 57,000,000).

    ## How to tell it from its look-alikes
    Codes that were clamped to half their range (WGT210) or wrapped (WGT211) are shifted too and explain this finding.
    Weights with a real mean of 0.2 standard deviations would reach 0.67: a lone module between 0.5 and 0.75 is a
    warning. Rounding that leaves out one end of the range shifts Q4_0 by 0.3, and is healthy.

    ## How to confirm
    Unpack the codes and zero points of the named module; the mean of their difference is the number of this finding.

    ## How to repair it
    A wrong label: write the other `checkpoint_format`; safe unattended, since the data decides, but the engine must
    know that format. Stored zero points that are off: add or subtract one in every field. That is exact, and then done
    unattended, if no zero point stands at the end of the range towards which they were shifted.

    ## References
    vllm-project/vllm#38966, vllm-project/vllm#26092, vllm-project/vllm#26343, ModelCloud/GPTQModel#2350
    """
    codes = {name: profile.codes for name, profile in module_profiles.items() if profile.codes is not None}
    judged = [(modules[name], stats) for name, stats in codes.items() if name in modules and _is_centred(stats)]
    alone = [(module, stats) for module, stats in judged if stats.num_bits <= MAX_BITS_ALONE]
    found = list(_alone(alone, second_look))
    yield from _findings(found, len(alone), declaration)
    yield from _findings(_together([pair for pair in judged if pair[1].num_bits > MAX_BITS_ALONE]), 0, None)


def _is_centred(stats: CodeStats) -> bool:
    return HALF_USED < stats.upper_half < 1 - HALF_USED


def _alone(judged: Sequence[tuple[StoredModule, CodeStats]], second_look: SecondLook) -> Iterator[Shifted]:
    for module, stats in judged:
        if _share(stats) is None:
            continue
        wide = second_look.codes(module)
        share = _share(wide.stats) if wide is not None else None
        if wide is not None and share is not None:
            yield Shifted(module, wide.stats.shift, share)


def _share(stats: CodeStats) -> float | None:
    """The share of outputs that are shifted, if it is high enough."""
    share = stats.shift_up if stats.shift > 0 else stats.shift_down
    return share if MIN_SHIFT < abs(stats.shift) < MAX_SHIFT and share > MIN_SHARE else None


def _together(judged: Sequence[tuple[StoredModule, CodeStats]]) -> list[Shifted]:
    """Modules of eight bits, if their median and nearly all of them are shifted one way."""
    if len(judged) < MIN_VOTES:
        return []
    shifts = np.array([stats.shift for _, stats in judged])
    middle = float(np.median(shifts))
    if not MIN_SHIFT < abs(middle) < MAX_SHIFT or ((shifts * np.sign(middle)) > 0).mean() < MIN_SHARE:
        return []
    return [Shifted(module, stats.shift, 1.0) for module, stats in judged if stats.shift * middle > 0]


def _findings(found: Sequence[Shifted], judged: int, declaration: Declaration | None) -> Iterator[Finding]:
    for sign in (-1, 1):
        same = [one for one in found if one.shift * sign > 0]
        relabel = _other_version(same, sign) if same else None
        if relabel and declaration is not None and is_in_config(len(same), judged, declaration):
            yield from (_label_finding(declaration, one, len(same), relabel) for one in same)
            continue
        is_voted = len(same) >= MIN_VOTES
        for one in same:
            yield _tensor_finding(one, sign, is_hint=not is_voted and abs(one.shift) < SURE_SHIFT)


def _other_version(same: Sequence[Shifted], sign: int) -> str | None:
    """The GPTQ version under which these modules would not be shifted; None where versions do not matter.

    A shift below zero: the zero points were read one too high, as v1 reads v2's.
    """
    scheme = same[0].module.form.scheme
    if same[0].module.form.format != V1 or scheme is None:
        return None
    is_v2 = scheme.format == V2
    return V2 if sign < 0 and not is_v2 else V1 if sign > 0 and is_v2 else None


def _label_finding(declaration: Declaration, one: Shifted, count: int, relabel: str) -> Finding:
    place = config_place(declaration, one.module, "label", "zero_point")
    said = V1 if relabel == V2 else V2
    key = place.key if (place.key or "").endswith("format") else f"{declaration.key}.checkpoint_format".lstrip(".")
    return Finding(
        location=replace(place, key=key),
        message=f"{key} says {said} (or nothing, which means it), but zero points are stored as in {relabel}: mean code "
        f"- zero point is {one.shift:+.2f} instead of 0 in {count} modules, {one.module.name} among them",
        measured={"median_code_minus_zero": round(one.shift, 3), "modules": count},
        bound={"abs_max": MIN_SHIFT, "written_by": relabel},
        fix=Fix(id="correct-checkpoint-format", safe=True),
        predicts="one ordinary token repeated",
        fold="label",
    )


def _tensor_finding(one: Shifted, sign: int, *, is_hint: bool) -> Finding:
    role = "zero_point" if one.module.part("zero_point") is not None else PAYLOAD
    info = one.module.part(role) or one.module.any_part
    side = "zero points are one too high" if sign < 0 else "zero points are one too low"
    if role == PAYLOAD:
        side = "codes are one too low" if sign < 0 else "codes are one too high"
    return Finding(
        location=one.module.place(role),
        message=f"{info.name}: {side}: mean code - zero point is {one.shift:+.2f} instead of 0, in {one.share:.0%} of "
        "the outputs the same way",
        severity=Severity.WARNING if is_hint else None,
        confidence=Confidence.HINT if is_hint else None,
        measured={"median_code_minus_zero": round(one.shift, 3), "share_of_outputs": round(one.share, 3)},
        bound={"abs_max": MIN_SHIFT, "share_max": MIN_SHARE},
        fix=Fix(id="shift-zero-points", safe=False),
        predicts="one ordinary token repeated",
        fold=f"zero points {'high' if sign < 0 else 'low'}",
    )

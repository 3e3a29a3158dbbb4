"""WGT229: weights of a size that no trained model has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.checks.weights.scale_outlier import MIN_Z, SURE_Z, is_of_scales, is_outlier, max_nats
from degarble.evidence.magnitudes import Magnitude
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.layer import rows
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.sample import UNREADABLE
from degarble.registry import Level, check

LARGE_RMS = 1.5
"""Linears of trained models stay below it; above it, whole numbers are codes."""
HUGE_RMS = 8.0
MIN_CODE = 3
"""Ternary models hold -1, 0, 1."""
EXPLAINED_BY = (
    "WGT201", "WGT202", "WGT203", "WGT206", "WGT207", "WGT208", "WGT210", "WGT211", "WGT212", "WGT214", "WGT215",
    "WGT216", "WGT221", "WGT222", "QNT101", "QNT102", "QNT109", *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING,
)  # fmt: skip


@check("WGT229", confidence=Confidence.LIKELY, level=Level.CONTENT, symptom_of=EXPLAINED_BY)
def magnitude_implausible(
    modules: Modules, module_profiles: Mapping[str, ModuleProfile], magnitudes: Sequence[Magnitude] | None = None
) -> Iterator[Finding]:
    """Weights are far larger or smaller than in other layers, or have the size of raw codes.

    ## What it looks for
    The rms of every linear. Against the same module in the other layers: more than 1.79 nats (a factor of six; 5.5 nats
    in the first layer) and 6 robust deviations from their median, where neither a scale nor a fold explains it; healthy
    modules stay within 1.23 nats (first layer 3.9). And by itself: whole numbers up to 3 and more with an rms above 1.5
    in a plain weight are codes that nobody scaled; any linear with an rms above 8 is beyond what training leaves (1.1
    at most in the models measured). Measured on 22,792 modules of 116 checkpoints: docs/calibration.md.

    ## Why output turns to garbage
    A factor that was applied twice or never: codes 0 to 15 copied as if they were weights, an FP8 payload cast to bf16
    without its scale, a fold that reached the weight and not its norm.

    ## What you will see
    Nonsense or NaN from the first token; one k_proj without its scale still answers short questions.

    ## How to tell it from its look-alikes
    The first layer reads the embedding, whose size is anything. A fold makes a weight larger and the norm before it, or
    the linear that undoes it, smaller: what is left of both counts. Ternary weights are whole numbers,
    but small. A scale that is off is WGT216, a reciprocal global scale WGT212, a missing one QNT101. With fewer than
    four layers only the sizes by themselves are judged.

    ## How to confirm
    Print the standard deviation of the module, and of its neighbours; for codes, the distinct values.

    ## How to repair it
    Take the tensor from the source. Not safe unattended: the factor alone does not say where it came from.

    ## References
    vllm-project/vllm#41021, modular/modular#6600
    """
    known: set[str] = set()
    for name, profile in module_profiles.items():
        module = modules.get(name)
        finding = _by_itself(module, profile) if module is not None else None
        if finding is not None:
            known.add(name)
            yield finding
    for one in magnitudes or ():
        if one.module.name not in known and is_outlier(one) and not is_of_scales(one):
            yield _unlike_peers(one)


def _by_itself(module: StoredModule, profile: ModuleProfile) -> Finding | None:
    if module.kind != "linear" or profile.values.rms <= LARGE_RMS:
        return None
    if not module.form.is_quantized and _is_whole_numbers(module, profile):
        return _finding(module, profile, "holds whole numbers, as codes are", LARGE_RMS, "codes as values")
    if profile.values.rms > HUGE_RMS:
        return _finding(module, profile, "is larger than any trained weight", HUGE_RMS, "huge")
    return None


def _unlike_peers(one: Magnitude) -> Finding:
    factor = 2.718281828459045**one.deviation
    return Finding(
        location=one.module.place(),
        message=f"{one.module.any_part.name}: weights are {factor:.3g} times as large as in the other layers "
        f"({one.z:.1f} robust deviations)",
        severity=Severity.ERROR if one.z > SURE_Z else Severity.WARNING,
        measured={"log_ratio": round(one.deviation, 3), "robust_z": round(one.z, 1), "rms": one.rms},
        bound={"log_ratio_max": max_nats(one), "robust_z_max": MIN_Z},
        fix=Fix(id="copy-module", safe=False),
        fold="unlike peers",
    )


def _is_whole_numbers(module: StoredModule, profile: ModuleProfile) -> bool:
    try:
        values = rows(module, profile.outputs[:1])
    except UNREADABLE:
        return False
    return bool((values == np.round(values)).all()) and float(np.abs(values).max(initial=0.0)) >= MIN_CODE


def _finding(module: StoredModule, profile: ModuleProfile, what: str, bound: float, fold: str) -> Finding:
    return Finding(
        location=module.place(),
        message=f"{module.any_part.name}: rms {profile.values.rms:.3g}, {what}",
        measured={"rms": profile.values.rms, "absmax": profile.values.absmax},
        bound={"rms_max": bound},
        fix=Fix(id="copy-module", safe=False),
        fold=fold,
    )

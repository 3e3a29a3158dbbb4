"""WGT212: a global scale stored the wrong way up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix
from degarble.formats.interface import StoredModule
from degarble.formats.nvfp4 import LARGEST
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

DIVIDES = {"nvfp4": True, "modelopt_nvfp4": False}
"""Format -> whether its global scale divides (2688 / amax) or multiplies (amax / 2688)."""
AMAX_MAX = 1000.0
"""No trained matrix has a weight this large; the usual largest one is 0.1 to 10."""
AMAX_MIN = 1e-6


@check("WGT212", level=Level.CONTENT, symptom_of=("WGT201", "WGT202", *DAMAGED_FILE, *WRONG_READING))
def global_scale_reciprocal(modules: Modules, profiles: Mapping[str, TensorProfile]) -> Iterator[Finding]:
    """An NVFP4 global scale is the reciprocal of what its name promises.

    ## What it looks for
    The global scale of every NVFP4 weight. compressed-tensors stores 2688 / amax and divides by it, ModelOpt stores
    amax / 2688 and multiplies. From the stored number follows the largest weight the module can have: it must lie in
    [1e-6, 1000]. If it does not and the reciprocal's does, the number is the wrong way up. Exact arithmetic on every
    module; the two readings differ by a factor of about 1e6 to 1e8, so no healthy file comes near the bound.

    ## Why output turns to garbage
    Read the other way, every weight of the module is millions of times too large or too small. It happens in converters
    between the two conventions, and when a file is converted twice.

    ## What you will see
    The end-of-text token repeated, uniform logits, NaN as soon as activations overflow: perplexity 49,152, the size of
    the vocabulary, in a 135M model.

    ## How to tell it from its look-alikes
    A scale of zero or NaN is WGT202 or WGT201. Global scales that differ a little within a fused group are WGT213.
    Activation scales reach 1e4 in healthy models, so they are not judged. A matrix of zeros may carry any number.

    ## How to confirm
    Compare with the largest weight of the source model: 2688 divided by it is the divisor.

    ## How to repair it
    Store the reciprocal. Safe unattended: only one of the two numbers is possible, and no other tensor changes.

    ## References
    modular/modular#6600, intel/auto-round#2362
    """
    found = [module for module in modules.values() if module.form.format in DIVIDES and _is_inverted(module, profiles)]
    judged = sum(1 for module in modules.values() if module.form.format in DIVIDES)
    for module in found:
        yield _finding(module, profiles, len(found), judged)


def _value(module: StoredModule, profiles: Mapping[str, TensorProfile]) -> float | None:
    """The global scale; the largest of several."""
    info = module.part("global_scale")
    profile = profiles.get(info.name) if info is not None else None
    return profile.absmax if profile is not None and profile.absmax else None


def implied_amax(value: float, divides: bool) -> float:
    """The largest weight that a global scale allows for."""
    return LARGEST / value if divides else LARGEST * value


def _is_inverted(module: StoredModule, profiles: Mapping[str, TensorProfile]) -> bool:
    value = _value(module, profiles)
    if value is None or not 0 < value < float("inf"):
        return False
    divides = DIVIDES[module.form.format]
    return not _is_plausible(implied_amax(value, divides)) and _is_plausible(implied_amax(value, not divides))


def _is_plausible(amax: float) -> bool:
    return AMAX_MIN <= amax <= AMAX_MAX


def _finding(module: StoredModule, profiles: Mapping[str, TensorProfile], found: int, judged: int) -> Finding:
    value, divides = _value(module, profiles) or 0.0, DIVIDES[module.form.format]
    right, wrong = implied_amax(value, not divides), implied_amax(value, divides)
    name = module.place("global_scale").tensor
    verb = "divides" if divides else "multiplies"
    return Finding(
        location=module.place("global_scale"),
        message=f"{name} is {value:.6g} and {verb}: the largest weight would be {wrong:.3g}. The reciprocal gives "
        f"{right:.3g}, so it is stored the wrong way up, as in {found} of {judged} modules",
        measured={"global_scale": value, "implied_amax": wrong, "implied_amax_of_reciprocal": right},
        bound={"amax_min": AMAX_MIN, "amax_max": AMAX_MAX},
        fold="reciprocal",
        fix=Fix(id="invert-global-scale", safe=True),
    )

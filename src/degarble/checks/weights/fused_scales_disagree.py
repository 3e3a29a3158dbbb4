"""WGT213: scales of modules that an engine joins, and that must be one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.fused_groups import FusedGroup
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

WARNING_RATIO = 1.01
ERROR_RATIO = 1.5
UNIFY = Fix(id="unify-fused-scales", safe=True)


@check("WGT213", level=Level.CONTENT, symptom_of=("WGT201", "WGT202", "WGT212", *DAMAGED_FILE, *WRONG_READING))
def fused_scales_disagree(
    modules: Modules, fused_groups: tuple[FusedGroup, ...], profiles: Mapping[str, TensorProfile]
) -> Iterator[Finding]:
    """Modules that engines join into one matrix (q/k/v, gate/up) have different global scales.

    ## What it looks for
    The global scale of NVFP4 weights within every group that engines fuse, experts included. Exactly equal in the files
    of the tools that unify them (3 of 3 read); a ratio above 1.01 is a warning, above 1.5 an error. One scale for a
    whole FP8 matrix is never unified by the tools and requantised by engines: ratios up to 13 are healthy, so they are
    information, from 1.01 on.

    ## Why output turns to garbage
    The joined matrix has room for one global scale. Engines take the largest (of divisors, the smallest multiplier) and
    leave the block scales as they are: the other parts are off by the ratio. A gate that is twice too large moves every
    expert and neuron behind it.

    ## What you will see
    Fluent and wrong answers ("The capital of the United States is New York City": gate/up, perplexity 8.6 to 19.9), or
    soup if keys and values read with the scale of queries. vLLM logs a warning once.

    ## How to tell it from its look-alikes
    FP8 with one scale per tensor is information only. Engines that do not fuse are not affected. One inverted scale
    (WGT212) or a zero one (WGT202) also breaks the ratio and is reported first.

    ## How to confirm
    Read the scales of the group; the finding has the ratio.

    ## How to repair it
    Give all parts the largest range's global scale and multiply the block scales of the others by the ratio, rounding
    them to E4M3 again; the codes stay. Safe unattended: block scales only shrink, by at most their own rounding error.

    ## References
    vllm-project/vllm#54974, vllm-project/vllm#47515, NVIDIA/TensorRT-LLM#14199, sgl-project/sglang#27588,
    intel/auto-round#2379
    """
    for group in fused_groups:
        stored = {module.name: found for module in group if (found := _scale(module, profiles)) is not None}
        if len(stored) < 2:
            continue
        ratio = max(stored.values()) / min(stored.values())
        if ratio > WARNING_RATIO:
            yield _finding([module for module in group if module.name in stored], stored, ratio)


def _role(module: StoredModule) -> str | None:
    if module.part("global_scale") is not None:
        return "global_scale"
    scheme = module.form.scheme
    is_single = scheme is not None and scheme.strategy == "tensor" and scheme.type == "float" and scheme.num_bits == 8
    return "scale" if is_single and module.part("scale") is not None else None


def _scale(module: StoredModule, profiles: Mapping[str, TensorProfile]) -> float | None:
    """The one scale of a whole matrix; None for zero, for NaN, and where there are several."""
    role = _role(module)
    info = module.part(role) if role is not None else None
    profile = profiles.get(info.name) if info is not None else None
    if profile is None or profile.count != 1 or not profile.absmax:
        return None
    return profile.absmax


def _finding(group: list[StoredModule], stored: Mapping[str, float], ratio: float) -> Finding:
    is_global = group[0].part("global_scale") is not None
    severity = Severity.INFO if not is_global else Severity.ERROR if ratio > ERROR_RATIO else Severity.WARNING
    odd = _odd_one(group, stored)
    leaves = {module.name.rpartition(".")[2]: stored[module.name] for module in group}
    table = ", ".join(f"{leaf} {value:.6g}" for leaf, value in leaves.items())
    fate = "an engine that joins them applies one" if is_global else "engines requantise them to one"
    places = tuple(module.place(_role(module) or "scale") for module in [odd, *(m for m in group if m is not odd)])
    return Finding(
        location=replace(odd.place(_role(odd) or "scale")),
        message=f"{odd.name.rpartition('.')[0]}: {table} differ by a factor of {ratio:.4g}; {fate}",
        severity=severity,
        places=places,
        measured={"ratio": round(ratio, 6), **leaves},
        bound={"ratio_max": WARNING_RATIO, "ratio_error": ERROR_RATIO},
        fold="global" if is_global else "tensor",
        fix=UNIFY if is_global else None,
    )


def _odd_one(group: list[StoredModule], stored: Mapping[str, float]) -> StoredModule:
    """The module farthest from the others; of two, the second."""
    middle = sorted(stored.values())[len(stored) // 2 if len(stored) > 2 else 0]
    if len(group) == 2:
        return group[1]
    return max(group, key=lambda module: max(stored[module.name] / middle, middle / stored[module.name]))

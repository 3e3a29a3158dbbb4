"""WGT215: exponents taken for numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from degarble.checks.weights.explained_by import DAMAGED_FILE, WRONG_READING
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Severity
from degarble.formats.e8m0 import BIAS
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

WIDE = ("F32", "F16", "BF16", "F64")
LOWEST = 64.0
HIGHEST = 254.0
"""Exponent bytes of real scales are 2 ** -60 at the least, so 67 and more; a real scale of 64 would mean weights of
thousands."""
MX_METHODS = frozenset({"mxfp4", "mxfp8", "quark"})


@check("WGT215", level=Level.CONTENT, symptom_of=("WGT201", *DAMAGED_FILE, *WRONG_READING))
def exponent_bytes_as_values(
    modules: Modules, profiles: Mapping[str, TensorProfile], declaration: Declaration | None = None
) -> Iterator[Finding]:
    """Scales are exponent bytes (E8M0) stored as if they were the scales themselves.

    ## What it looks for
    Scales in a floating-point dtype that are whole numbers between 64 and 254 throughout, as exponent bytes copied by
    value are (127 stands for 1). And scales stored as plain bytes beside FP8 weights where neither the format's name
    nor the config says that they are exponents: a warning, because readers disagree on what to do with such bytes.
    Every scale is read. Healthy: the largest of 1,191 scale tensors measured is 4.97.

    ## Why output turns to garbage
    A byte of 120 means 2 ** -7. Multiplied as 120.0 the weights are 15,000 times too large; the other way round, a
    scale written into bytes by value becomes 0 and the layer silent.

    ## What you will see
    Repetition or NaN from the first token. A model that was quantised again from such weights has a mean |w| in the
    thousands (13,410 in one published case, instead of 0.03).

    ## How to tell it from its look-alikes
    MXFP4 and MXFP8 files hold exponents as bytes by their standard, under names or a config that say so; DeepSeek's
    files say `scale_fmt: ue8m0`. NVFP4 block scales reach 448 by design, in E4M3. A large scale of one module is
    WGT216.

    ## How to confirm
    Print a few scales. Numbers such as 118, 119, 121 are exponents; 2 ** (n - 127) are the scales.

    ## How to repair it
    Replace the numbers by 2 ** (n - 127), or declare the bytes as E8M0. Safe unattended where all scales of the module
    are whole numbers in that range.

    ## References
    jundot/omlx#2159, vllm-project/vllm#43416, sgl-project/sglang#26701, sgl-project/sglang#33541
    """
    for module in modules.values():
        info = module.part("scale")
        profile = profiles.get(info.name) if info is not None else None
        if info is None or profile is None or not module.form.is_quantized:
            continue
        if info.dtype in WIDE and _are_exponents(module, profile):
            yield _by_value(module, profile)
        elif info.dtype == "U8" and module.form.format == "fp8_block" and not _says_exponents(declaration):
            yield _unsaid(module)


def _are_exponents(module: StoredModule, profile: TensorProfile) -> bool:
    low = profile.counts.min_positive if profile.counts is not None else None
    if (
        low is None
        or low < LOWEST
        or (profile.absmax or 0) > HIGHEST
        or profile.counts is None
        or profile.counts.negatives
    ):
        return False
    scales = module.array("scale").astype(np.float32)
    return bool((scales == np.round(scales)).all())


def _says_exponents(declaration: Declaration | None) -> bool:
    """Whether the config calls the scales exponents."""
    if declaration is None:
        return False
    said = str(declaration.raw.get("scale_fmt") or declaration.raw.get("scale_dtype") or "").lower()
    default = declaration.default
    return "e8m0" in said or declaration.method in MX_METHODS or (default is not None and default.group_size == 32)


def _by_value(module: StoredModule, profile: TensorProfile) -> Finding:
    low = profile.counts.min_positive if profile.counts is not None else None
    return Finding(
        location=module.place("scale"),
        message=f"{profile.name} ({profile.dtype}) holds whole numbers from {low:.0f} to {profile.absmax:.0f}: "
        f"exponent bytes taken for scales, 2 ** (n - {BIAS}) are meant",
        measured={"smallest": low, "largest": profile.absmax},
        bound={"scale_max": LOWEST},
        fold="values",
        fix=Fix(id="decode-exponent-scales", safe=True),
    )


def _unsaid(module: StoredModule) -> Finding:
    info = module.part("scale")
    return Finding(
        location=module.place("scale"),
        message=f"{info.name if info else module.name} is stored as bytes beside FP8 weights, and nothing says that "
        "they are exponents: a reader that multiplies by the byte is about 2 ** 120 off",
        severity=Severity.WARNING,
        measured={"dtype": "U8"},
        bound={"declared": "ue8m0"},
        fold="unsaid",
        fix=Fix(id="declare-scale-format", safe=True),
    )

"""WGT219: a router's correction bias that lost its resolution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.checks.weights.explained_by import DAMAGED_FILE
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

LEAF = "e_score_correction_bias"
MIN_EXPERTS = 16
SHARE = 0.25
"""Healthy fp32: 238 distinct values among 256. Cast to bf16 around 7: 8 among 256."""
GGUF_FLOATS = {"GGUF:F32": "<f4", "GGUF:F16": "<f2"}
RESTORE = Fix(id="restore-module", safe=False)


@check("WGT219", level=Level.CONTENT, symptom_of=("WGT203", *DAMAGED_FILE))
def router_bias_collapsed(modules: Modules, profiles: Mapping[str, TensorProfile]) -> Iterator[Finding]:
    """The correction bias of a router has lost its resolution: many experts share one value.

    ## What it looks for
    `e_score_correction_bias` of every layer. All values equal and not zero: error. From 16 experts on, distinct values
    for fewer than a quarter of them: warning (healthy fp32 238 of 256, after a cast to bf16 8 of 256). All zero is a
    bias that was never trained: information. All values are read; exact.

    ## Why output turns to garbage
    The bias decides which experts are chosen, in differences of a thousandth at a size of about 7. bf16 has steps of
    0.03 there: hundreds of experts collapse to a few values, and ties are broken by number. In one model 98.5 % of the
    tokens went to other experts.

    ## What you will see
    Lower accuracy without any error. If all values fall together, experts are chosen by score alone and load balance is
    gone: worse answers everywhere.

    ## How to tell it from its look-alikes
    A file in bf16 whose values spread over several units keeps enough of them apart: only the count is judged, not the
    dtype. Untrained and newly created models have zeros. A router weight of zeros is WGT204.

    ## How to confirm
    Count the distinct values here and in the source model.

    ## How to repair it
    Copy the bias from the source in fp32. It cannot be told from the rounded values, so nothing is done unattended.

    ## References
    sgl-project/sglang#37133, sgl-project/sglang#31213, vllm-project/vllm#23640
    """
    for module in modules.values():
        bias = _bias(module)
        if bias is None or module.any_part.name not in profiles:
            continue
        distinct = len(np.unique(bias))
        if not bias.any():
            yield _finding(module, bias, distinct, Severity.INFO, "all values are zero: never trained", "zero")
        elif distinct == 1:
            text = f"all {bias.size} values are {float(bias[0]):.4g}: the bias prefers no expert"
            yield _finding(module, bias, distinct, Severity.ERROR, text, "equal")
        elif bias.size >= MIN_EXPERTS and distinct < SHARE * bias.size:
            text = f"only {distinct} distinct values for {bias.size} experts, from {bias.min():.5g} to {bias.max():.5g}"
            yield _finding(module, bias, distinct, Severity.WARNING, text, "few")


def _bias(module: StoredModule) -> Array | None:
    """The values, if the module is such a bias."""
    leaf = (module.canonical or module.name).rpartition(".")[2]
    info = module.part("bias") if leaf != LEAF and module.form.roles.keys() == {"bias"} else module.payload
    is_named = leaf == LEAF or (leaf == "exp_probs_b" and info is not None)
    if not is_named:
        return None
    info = info or module.any_part
    if len(info.shape) != 1 or info.shape[0] < 2:
        return None
    if info.dtype in GGUF_FLOATS:
        return module.reader.raw(info).view(GGUF_FLOATS[info.dtype])
    if info.dtype not in ("F32", "BF16", "F16", "F64"):
        return None
    return module.reader.read(info).astype(np.float64)


def _finding(module: StoredModule, bias: Array, distinct: int, severity: Severity, text: str, fold: str) -> Finding:
    return Finding(
        location=module.place(),
        message=f"{module.any_part.name} ({module.any_part.dtype}): {text}",
        severity=severity,
        measured={"distinct": distinct, "experts": int(bias.size)},
        bound={"distinct_min": int(SHARE * bias.size)},
        fold=fold,
        fix=RESTORE if severity is not Severity.INFO else None,
    )

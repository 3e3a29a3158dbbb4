"""WGT218: keys with a bias that swallows their values when the cache is quantised."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from degarble.checks.weights.explained_by import DAMAGED_FILE
from degarble.evidence.layer_series import layer_series, with_peers
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check

RATIO = 8.0
LARGE = 50.0
"""A norm below this is no hazard, however small the others are."""


@check(
    "WGT218",
    level=Level.CONTENT,
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    symptom_of=("WGT203", *DAMAGED_FILE),
)
def key_bias_outlier(modules: Modules, profiles: Mapping[str, TensorProfile]) -> Iterator[Finding]:
    """The bias of k_proj in some layers dwarfs that in the others: its keys do not survive a quantised cache.

    ## What it looks for
    The Euclidean norm of `k_proj.bias` in every layer, from four layers on. More than 8 times the median layer, and
    above 50, is a warning. In Qwen2.5-7B layers 0 and 27 have 605 and 921 against a median of 22 (27 and 42 times). All
    bytes are read; models without a bias are not judged. No false alarm was measured: few families have the bias.

    ## Why output turns to garbage
    The bias is added to every key, so one channel is hundreds while the rest is about one. A KV cache with one scale
    per tensor or block spends its few codes on that channel, and what tells tokens apart is rounded away.

    ## What you will see
    Nothing with a 16-bit cache. With a 3- or 4-bit cache (and in some engines FP8) perplexity goes from 7.5 to 9,410;
    other models lose 0.3 % from the same setting.

    ## How to tell it from its look-alikes
    The weights are healthy: this is a hazard of the model, not damage, unless the source model has other numbers. A
    norm out of line is WGT217.

    ## How to confirm
    Run the same prompt with an unquantised KV cache: if it is right, this is the reason.

    ## How to repair it
    Keep the cache of the named layers, or of all, in 16 bits; or quantise keys before the bias and the rotary embedding
    are applied. Nothing in the checkpoint needs to change, so there is nothing to do unattended.

    ## References
    ggml-org/llama.cpp#21385, vllm-project/vllm#10411
    """
    series = [
        one
        for one in layer_series(modules, lambda m: "bias" in m.form.roles)
        if one.template.rpartition(".")[2] == "k_proj"
    ]
    for one in with_peers(series, "biases of k_proj"):
        sizes = {layer: size for layer, module in one.by_layer.items() if (size := _norm(module, profiles)) is not None}
        if len(sizes) < 4:
            continue
        usual = float(np.median(list(sizes.values())))
        for layer, size in sizes.items():
            if size > RATIO * usual and size > LARGE:
                yield _finding(one.by_layer[layer], size, usual)


def _norm(module: StoredModule, profiles: Mapping[str, TensorProfile]) -> float | None:
    info = module.part("bias")
    profile = profiles.get(info.name) if info is not None else None
    if profile is None or profile.rms is None:
        return None
    return profile.rms * math.sqrt(profile.count)


def _finding(module: StoredModule, size: float, usual: float) -> Finding:
    return Finding(
        location=module.place("bias"),
        message=f"{module.place('bias').tensor} has norm {size:.4g}, the median layer {usual:.4g}: keys of layer "
        f"{module.layer} do not fit a cache with few bits",
        measured={"norm": round(size, 3), "median": round(usual, 3), "ratio": round(size / max(usual, 1e-30), 2)},
        bound={"ratio_max": RATIO, "norm_max": LARGE},
        fold="outlier",
        fix=Fix(id="keep-kv-cache-unquantized", safe=False),
    )

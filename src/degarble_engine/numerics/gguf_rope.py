"""Rotary settings of a GGUF file as transformers spells them.

    rope.scaling.type            linear where a factor is there without it, as llama.cpp takes it
    rope.scaling.factor          factor; rope.scale_linear in old files
    …original_context_length     original_max_position_embeddings; the context length where it is absent
    …yarn_beta_fast, beta_slow   beta_fast, beta_slow
    …attn_factor                 longrope: attention_factor. yarn: llama.cpp multiplies it by 0.1 ln(factor) + 1
    …yarn_log_multiplier         mscale_all_dim, a tenth of it in files of DeepSeek's, whose mscale is the same; 1 elsewhere
    rope_factors_long, _short    long_factor, short_factor
    rope.dimension_count         partial_rotary_factor, where it is less than a head
    rope_freqs                   divisors of the frequencies (Llama 3): see `WalkedModel`

Sources: llama.cpp `llama-model.cpp`, `llama-context.cpp`, `ggml_rope_yarn_corr_dims` and convert_hf_to_gguf.py; transformers
`modeling_rope_utils.py`. Long factors: transformers takes them for texts longer than the original context, llama.cpp
for contexts that are allocated longer: the two differ for short texts, and the walk does as transformers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from degarble.checkpoint.gguf import GgufFile
from degarble.evidence.model import ModelConfig

LONG, SHORT = "rope_factors_long", "rope_factors_short"
TENTHS = frozenset({"deepseek2"})
"""GGUF architectures whose converter stores a tenth of mscale_all_dim."""


class RopeUnknown(Exception):
    """Rotary settings that cannot be told to transformers; the message says which."""


def rope_values(config: ModelConfig, factors: Mapping[str, list[float]]) -> dict[str, Any]:
    """Config values beyond the plain ones. `factors`: the stored tensors of long and short factors. Raises RopeUnknown.

    They are spelt `rope_scaling`, the older way: families with two kinds of attention put that where it belongs.
    """
    gguf = config.gguf
    if gguf is None or gguf.architecture is None:
        return {}
    scaling = _scaling(gguf, gguf.architecture, config, factors)
    return _partial(gguf, gguf.architecture, config) | ({"rope_scaling": scaling} if scaling else {})


def _scaling(
    gguf: GgufFile, architecture: str, config: ModelConfig, factors: Mapping[str, list[float]]
) -> dict[str, Any]:
    prefix = f"{architecture}.rope.scaling."
    factor = _number(gguf, f"{prefix}factor") or _number(gguf, f"{architecture}.rope.scale_linear")
    kind = gguf.text(f"{prefix}type") or ("longrope" if LONG in factors else "linear")
    if kind == "none" or (kind in ("linear", "yarn") and factor in (None, 0.0, 1.0)):
        return {}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    original = _number(gguf, f"{prefix}original_context_length") or config.text.get("max_position_embeddings")
    if not isinstance(original, (int, float)):
        raise RopeUnknown(f"{kind} without an original context length")
    found: dict[str, Any] = {"rope_type": kind, "original_max_position_embeddings": int(original)}
    if kind == "yarn":
        assert factor is not None
        return found | {"factor": factor} | _yarn(gguf, architecture, factor)
    if kind == "longrope":
        return found | _long(gguf, config, factors, original)
    raise RopeUnknown(f"{kind[:40]!r}")


def _yarn(gguf: GgufFile, architecture: str, factor: float) -> dict[str, Any]:
    prefix = f"{architecture}.rope.scaling."
    share = _number(gguf, f"{prefix}yarn_ext_factor")
    if share is not None and share != 1.0:
        raise RopeUnknown(f"yarn with an extrapolation factor of {share:g}")
    found: dict[str, Any] = {}
    for key in ("beta_fast", "beta_slow"):
        value = _number(gguf, f"{prefix}yarn_{key}")
        if value:
            found[key] = value
    multiplier = _number(gguf, f"{prefix}yarn_log_multiplier")
    attention = _number(gguf, f"{prefix}yarn_attn_factor") or _number(gguf, f"{prefix}attn_factor")
    if multiplier:
        of_all = multiplier * 10 if architecture in TENTHS else multiplier
        found |= {"mscale": of_all if architecture in TENTHS else 1.0, "mscale_all_dim": of_all}
    elif attention is not None and attention != 1.0:
        found["attention_factor"] = attention * (0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
    return found


def _long(gguf: GgufFile, config: ModelConfig, factors: Mapping[str, list[float]], original: float) -> dict[str, Any]:
    if LONG not in factors or SHORT not in factors:
        raise RopeUnknown("longrope without its tensors of factors")
    longest = config.text.get("max_position_embeddings")
    found: dict[str, Any] = {"long_factor": factors[LONG], "short_factor": factors[SHORT]}
    found["factor"] = longest / original if isinstance(longest, (int, float)) else 1.0
    attention = _number(gguf, f"{gguf.architecture}.rope.scaling.attn_factor")
    return found if attention is None else found | {"attention_factor": attention}


def _partial(gguf: GgufFile, architecture: str, config: ModelConfig) -> dict[str, Any]:
    width, head = _number(gguf, f"{architecture}.rope.dimension_count"), config.text.get("head_dim")
    if width is None or config.text.get("kv_lora_rank") or not isinstance(head, int) or not 0 < width < head:
        return {}
    return {"partial_rotary_factor": width / head}


def _number(gguf: GgufFile, key: str) -> float | None:
    value = gguf.metadata.get(key)
    if value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise RopeUnknown(f"{key} is no number") from None
    if not math.isfinite(found) or found < 0:
        raise RopeUnknown(f"{key} is {found:g}")
    return found

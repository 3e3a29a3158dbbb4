"""Native FP8 (`fp8`: DeepSeek, Qwen, MiniMax, Mistral) and FBGEMM's (`fbgemm_fp8`).

    {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic",
     "scale_fmt": "ue8m0", "expert_dtype": "fp4", "modules_to_not_convert": [...]}       or "ignored_layers"

No block size: one scale per tensor, though transformers then assumes 128 x 128. The list of modules to leave alone is
often absent, because the checkpoint's own code never converts embeddings, head, norms, router and the MTP projection;
see `implicit_plain`. Source: DeepSeek-V3 `config.json` and `README_WEIGHTS.md`, transformers `FineGrainedFP8Config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.config_object import ConfigObject
from degarble.methods.interface import Declaration, Method, ModuleRule

NEVER_CONVERTED = (
    "embed_tokens",
    "lm_head",
    "norm",
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "q_a_layernorm",
    "kv_a_layernorm",
    "q_norm",
    "k_norm",
    "kv_norm",
    "enorm",
    "hnorm",
    "mlp.gate",
    "mlp.router",
    "block_sparse_moe.gate",
    "mlp.shared_expert_gate",
    "mlp.gate.e_score_correction_bias",
    "eh_proj",
    "shared_head.head",
    "shared_head.norm",
    "indexer.weights_proj",
)
"""DeepSeek keeps these in bf16 or fp32 without a list; nobody multiplies them in FP8."""


class Fp8Method(Method):
    """Config of native FP8 and FBGEMM FP8."""

    names: ClassVar[tuple[str, ...]] = ("fp8", "fbgemm_fp8")

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        config = ConfigObject(raw, file=file, key=key)
        method = "fbgemm_fp8" if (config.text("quant_method") or "").lower() == "fbgemm_fp8" else "fp8"
        block = config.pair("weight_block_size")
        fmt = config.text("fmt")
        activations = (config.text("activation_scheme") or "dynamic").lower()
        default = Scheme(
            method=method,
            format=config.text("scale_fmt"),
            type="float",
            num_bits=8,
            strategy=_strategy(raw, method, block),
            block_shape=block,
            symmetric=True,
            activations=activations if activations in ("dynamic", "static") else None,
        )
        rules: tuple[ModuleRule, ...] = ()
        if (config.text("expert_dtype") or "").lower() == "fp4":
            rules = (ModuleRule(key=config.path("expert_dtype"), matches=is_routed_expert, scheme=_FP4_EXPERTS),)
        return Declaration(
            method=method,
            file=file,
            key=key,
            raw=raw,
            default=default,
            rules=rules,
            skips=config.skips("modules_to_not_convert", "ignored_layers"),
            implicit_plain=("lm_head", "embed_tokens") if method == "fbgemm_fp8" else NEVER_CONVERTED,
            ill_typed=tuple(config.ill_typed),
            notes={"fmt": fmt, "has_block_size": block is not None},
        )


_FP4_EXPERTS = Scheme(method="fp8", type="float", num_bits=4, strategy="group", group_size=32, symmetric=True)
"""DeepSeek-V4's routed experts."""


def is_routed_expert(module: str) -> bool:
    """Whether a module is one of a layer's routed experts, or holds all of them."""
    return "experts" in module.split(".")


def _strategy(raw: Mapping[str, Any], method: str, block: tuple[int, int] | None) -> str | None:
    """Blocks where a size is given; per tensor where null is written out; otherwise the config does not say."""
    if method == "fbgemm_fp8":
        return "channel"
    if block is not None:
        return "block"
    return "tensor" if "weight_block_size" in raw and raw["weight_block_size"] is None else None

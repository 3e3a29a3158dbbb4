"""Config of gpt-oss."""

from __future__ import annotations

from degarble.methods.mxfp4 import Mxfp4Method


def test_only_experts_are_quantised() -> None:
    skips = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    raw = {"quant_method": "mxfp4", "modules_to_not_convert": skips}
    found = Mxfp4Method().declare(raw, file="config.json", key="quantization_config")
    scheme = found.scheme_for("model.layers.0.mlp.experts.gate_up_proj")
    assert scheme is not None and (scheme.num_bits, scheme.group_size) == (4, 32)
    assert found.scheme_for("model.layers.0.self_attn.q_proj") is None and found.default is None
    assert found.skips[0].entries == tuple(skips) and found.is_implicitly_plain("model.layers.0.mlp.router")


def test_hostile_values() -> None:
    found = Mxfp4Method().declare({"modules_to_not_convert": {"a": 1}}, file="config.json", key="")
    assert found.ill_typed == ("modules_to_not_convert",)

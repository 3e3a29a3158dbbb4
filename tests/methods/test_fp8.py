"""Configs of native FP8 and FBGEMM FP8."""

from __future__ import annotations

import json
from pathlib import Path

from degarble.methods.fp8 import Fp8Method
from degarble.methods.interface import Declaration


def declare(**raw: object) -> Declaration:
    return Fp8Method().declare({"quant_method": "fp8", **raw}, file="config.json", key="quantization_config")


def test_deepseek(golden: Path) -> None:
    raw = json.loads((golden / "own-deepseek-fp8-block-576" / "config.json").read_bytes())["quantization_config"]
    found = declare(**raw)
    scheme = found.scheme_for("model.layers.0.mlp.up_proj")
    assert scheme is not None
    assert (scheme.strategy, scheme.block_shape, scheme.activations) == ("block", (128, 128), "dynamic")
    assert found.ill_typed == () and found.notes["fmt"] == "e4m3"
    for name in ("model.embed_tokens", "lm_head", "model.layers.3.mlp.gate", "model.layers.61.eh_proj",
                 "model.layers.61.shared_head.head", "model.layers.0.self_attn.kv_a_layernorm"):  # fmt: skip
        assert found.is_implicitly_plain(name)
    for name in ("model.layers.3.mlp.gate_proj", "model.layers.3.mlp.experts.0.up_proj"):
        assert not found.is_implicitly_plain(name)


def test_no_block_size() -> None:
    explicit, absent = declare(weight_block_size=None, activation_scheme="static").default, declare().default
    assert explicit is not None and absent is not None
    assert (explicit.strategy, explicit.activations) == ("tensor", "static")
    assert (absent.strategy, absent.block_shape) == (None, None)


def test_both_names_of_the_skip_list() -> None:
    found = declare(modules_to_not_convert=["lm_head"], ignored_layers=["model.embed_tokens"])
    assert [(skip.key, skip.entries) for skip in found.skips] == [
        ("quantization_config.modules_to_not_convert", ("lm_head",)),
        ("quantization_config.ignored_layers", ("model.embed_tokens",)),
    ]


def test_fp4_experts() -> None:
    found = declare(expert_dtype="fp4", weight_block_size=[128, 128], scale_fmt="ue8m0")
    expert = found.scheme_for("model.layers.0.mlp.experts.3.up_proj")
    shared = found.scheme_for("model.layers.0.mlp.shared_experts.up_proj")
    assert expert is not None and shared is not None
    assert (expert.num_bits, expert.group_size, shared.num_bits, shared.format) == (4, 32, 8, "ue8m0")


def test_fbgemm() -> None:
    found = declare(quant_method="fbgemm_fp8", activation_scale_ub=1200.0, modules_to_not_convert=["lm_head"])
    assert found.method == "fbgemm_fp8" and found.default is not None and found.default.strategy == "channel"


def test_hostile_values() -> None:
    found = declare(
        weight_block_size=[128, "x"], activation_scheme=3, modules_to_not_convert="lm_head", scale_fmt=[], fmt={}
    )
    keys = ("fmt", "activation_scheme", "scale_fmt", "weight_block_size", "modules_to_not_convert")
    assert set(found.ill_typed) == {f"quantization_config.{key}" for key in keys}
    assert found.default is not None and found.default.block_shape is None and found.skips == ()
    assert declare(weight_block_size=[0, -1]).ill_typed == ("quantization_config.weight_block_size",)
    assert declare(activation_scheme="sometimes").default is not None

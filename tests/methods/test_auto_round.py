"""auto-round's own grammar."""

from __future__ import annotations

from typing import Any

from degarble.methods.auto_round import AutoRoundMethod
from degarble.methods.interface import Declaration

BASE = {
    "quant_method": "auto-round",
    "bits": 4,
    "group_size": 128,
    "sym": True,
    "data_type": "int",
    "packing_format": "auto_round:auto_gptq",
    "autoround_version": "0.14.2",
}


def declare(raw: dict[str, Any]) -> Declaration:
    return AutoRoundMethod().declare(raw, file="config.json", key="quantization_config")


def test_the_layout_is_that_of_the_packing() -> None:
    gptq, awq = declare(BASE), declare(BASE | {"packing_format": "auto_round:auto_awq"})
    assert gptq.default is not None and awq.default is not None
    assert (gptq.default.method, gptq.default.format, gptq.method) == ("gptq", "gptq", "auto-round")
    assert (awq.default.method, awq.default.format) == ("awq", "gemm")
    assert gptq.version == "0.14.2" and gptq.ill_typed == ()
    assert gptq.is_implicitly_plain("lm_head")


def test_single_modules() -> None:
    """Whole names first, then expressions anywhere in the name; 16 bits are plain."""
    found = declare(
        BASE
        | {
            "extra_config": {
                "lm_head": {"bits": 16, "data_type": "float"},
                "model.layers.0.mlp.down_proj": {"bits": 8, "group_size": -1},
                r"layers\.\d+\.mlp\.down_proj$": {"bits": 2, "sym": False, "act_bits": 8},
            }
        }
    )
    assert found.scheme_for("lm_head") is None
    assert not found.is_implicitly_plain("lm_head")
    exact = found.scheme_for("model.layers.0.mlp.down_proj")
    assert exact is not None and (exact.num_bits, exact.strategy, exact.group_size) == (8, "channel", None)
    pattern = found.scheme_for("model.layers.1.mlp.down_proj")
    assert pattern is not None
    assert (pattern.num_bits, pattern.symmetric, pattern.activations) == (2, False, "dynamic")
    assert found.scheme_for("model.layers.1.mlp.up_proj") == found.default


def test_floats_and_foreign_packings() -> None:
    found = declare(BASE | {"data_type": "mx_fp", "packing_format": "auto_round:llm_compressor", "group_size": 32})
    assert found.default is not None
    assert (found.default.type, found.default.format) == ("float", "auto_round:llm_compressor")


def test_hostile_values() -> None:
    found = declare({"bits": [], "extra_config": {"a": 1, "(": {"bits": 3}}, "packing_format": {}, "data_type": 0})
    keys = ("bits", "extra_config.a", "packing_format", "data_type")
    assert set(found.ill_typed) == {f"quantization_config.{key}" for key in keys}
    assert found.notes["unusable_patterns"] == ["("]
    assert declare({"bits": 16}).default is None

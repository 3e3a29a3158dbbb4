"""ModelOpt's config in its two homes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from degarble.formats.scheme import Scheme
from degarble.methods.interface import Declaration
from degarble.methods.modelopt import ModelOptMethod


def declare(raw: dict[str, Any], file: str = "config.json") -> Declaration:
    return ModelOptMethod().declare(raw, file=file, key="quantization_config" if file == "config.json" else "")


@pytest.mark.parametrize(
    ("name", "text", "activations"),
    [
        ("modelopt-fp8", "8-bit float, per tensor", "static"),
        ("modelopt-nvfp4", "4-bit float, group 16", "static"),
        ("modelopt-int4-awq", "4-bit int, group 128", None),
    ],
)
def test_both_homes_say_the_same(golden: Path, name: str, text: str, activations: str | None) -> None:
    one = declare(json.loads((golden / name / "config.json").read_bytes())["quantization_config"])
    two = declare(json.loads((golden / name / "hf_quant_config.json").read_bytes()), "hf_quant_config.json")
    assert one.default is not None and one.default == two.default
    assert (one.default.label, one.default.activations) == (text, activations)
    assert [skips.key for skips in one.skips] == ["quantization_config.ignore"]
    assert [skips.key for skips in two.skips] == ["quantization.exclude_modules"]
    assert (one.sidecar, two.sidecar, two.key, one.version) == (False, True, "quantization", "0.47.0")
    assert one.ill_typed == two.ill_typed == ()


def test_written_sizes_and_zero_points() -> None:
    scheme = declare({"quant_algo": "W4A16_AWQ", "group_size": 64, "has_zero_point": True}).default
    assert scheme is not None and (scheme.group_size, scheme.symmetric) == (64, False)
    row = declare({"quant_algo": "w4a16_awq", "group_size": -1}).default
    assert row is not None and (row.strategy, row.group_size) == ("channel", None)
    tensor = declare({"quant_algo": "FP8", "group_size": 64}).default
    assert tensor is not None and tensor.group_size is None


def test_mixed_precision() -> None:
    found = declare(
        {
            "quantization": {
                "quant_algo": "MIXED_PRECISION",
                "kv_cache_quant_algo": "FP8",
                "quantized_layers": {
                    "model.layers.0.mlp.down_proj": {"quant_algo": "NVFP4", "group_size": 16},
                    "model.layers.1.mlp.down_proj": {"quant_algo": "FP8"},
                },
            }
        },
        "hf_quant_config.json",
    )
    assert found.default is None and found.scheme_for("model.layers.0.mlp.up_proj") is None
    four, eight = (found.scheme_for(f"model.layers.{n}.mlp.down_proj") for n in (0, 1))
    assert four is not None and eight is not None and (four.num_bits, eight.num_bits) == (4, 8)
    assert found.kv_cache is not None and (found.kv_cache.num_bits, found.kv_cache.type) == (8, "float")


def test_groups_speak_where_the_algorithm_is_unknown() -> None:
    found = declare(
        {
            "quant_algo": "W3A3_NEW",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 3, "type": "int", "group_size": 64},
                    "input_activations": {"dynamic": False},
                }
            },
            "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False},
        }
    )
    assert found.default == Scheme(
        method="modelopt", format="W3A3_NEW", type="int", num_bits=3, strategy="group", group_size=64,
        activations="static",
    )  # fmt: skip
    assert found.kv_cache is not None and found.kv_cache.num_bits == 8
    assert declare({"quant_algo": "W3A3_NEW"}).default is None
    unknown = declare({"kv_cache_quant_algo": "FP3"}).kv_cache
    assert unknown == Scheme(method="modelopt", format="FP3")


def test_hostile_values() -> None:
    found = declare(
        {
            "quant_algo": 4,
            "quantized_layers": {"a": 1},
            "exclude_modules": {"a": 1},
            "ignore": [1, "lm_head"],
            "config_groups": [],
            "producer": "me",
            "kv_cache_scheme": 8,
        }
    )
    keys = ("quant_algo", "quantized_layers.a", "exclude_modules", "ignore", "config_groups", "producer")
    assert set(found.ill_typed) == {f"quantization_config.{key}" for key in (*keys, "kv_cache_scheme")}
    assert found.default is None and [skips.entries for skips in found.skips] == [("lm_head",)]
    assert declare({"quantization": 3, "quant_algo": "FP8"}).default is not None

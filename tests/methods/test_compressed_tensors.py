"""compressed-tensors: groups, targets in three spellings, and what is inferred from what is not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from degarble.formats.scheme import Scheme
from degarble.methods.compressed_tensors import CompressedTensorsMethod
from degarble.methods.interface import Declaration

CT = "compressed-tensors"
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def declare(raw: dict[str, Any]) -> Declaration:
    return CompressedTensorsMethod().declare(raw, file="config.json", key="quantization_config")


def groups(*entries: tuple[list[str], dict[str, Any] | None], **more: Any) -> Declaration:
    """A config whose groups are (targets, weights)."""
    found = {f"group_{n}": {"targets": targets, "weights": args} for n, (targets, args) in enumerate(entries)}
    return declare({"quant_method": CT, "format": "pack-quantized", "config_groups": found} | more)


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "llm-compressor-w4a16-gptq-asym-g128": Scheme(
            method=CT, format="pack-quantized", type="int", num_bits=4, strategy="group", group_size=128,
            symmetric=False, act_order="static",
        ),
        "llm-compressor-w4a16-gptq-actorder-weight-g64": Scheme(
            method=CT, format="pack-quantized", type="int", num_bits=4, strategy="group", group_size=64,
            symmetric=True, act_order="weight",
        ),
        "llm-compressor-w8a8-int8": Scheme(
            method=CT, format="int-quantized", type="int", num_bits=8, strategy="channel", symmetric=True,
            act_order="static", activations="dynamic",
        ),
        "llm-compressor-fp8-block": Scheme(
            method=CT, format="float-quantized", type="float", num_bits=8, strategy="block",
            block_shape=(128, 128), symmetric=True, activations="dynamic",
        ),
        "llm-compressor-nvfp4": Scheme(
            method=CT, format="nvfp4-pack-quantized", type="float", num_bits=4, strategy="tensor_group",
            group_size=16, symmetric=True, activations="local",
        ),
        "llm-compressor-fp8-static-kvcache": Scheme(
            method=CT, format="float-quantized", type="float", num_bits=8, strategy="tensor", symmetric=True,
            activations="static",
        ),
    }.items(),
)  # fmt: skip
def test_golden(golden: Path, name: str, expected: Scheme) -> None:
    found = declare(json.loads((golden / name / "config.json").read_bytes())["quantization_config"])
    assert found.default == expected
    assert (found.version, found.ill_typed, found.implicit_plain) == ("0.19.0", (), ())
    assert [(skips.key, skips.entries) for skips in found.skips] == [("quantization_config.ignore", ("lm_head",))]
    kv_cache = Scheme(method=CT, type="float", num_bits=8, strategy="tensor", symmetric=True)
    assert found.kv_cache == (kv_cache if "kvcache" in name else None)


def test_names_before_patterns_before_classes() -> None:
    """Whatever the order of the groups."""
    found = groups(
        (["Linear"], INT4),
        (["re:.*down_proj"], INT4 | {"num_bits": 8}),
        (["model.layers.0.mlp.down_proj"], INT4 | {"num_bits": 3}),
        (["Embedding"], INT4 | {"num_bits": 2}),
    )
    bits = {
        name: (scheme.num_bits if scheme is not None else None)
        for name in ("model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj", "lm_head", "model.embed_tokens")
        for scheme in [found.scheme_for(name)]
    }
    assert list(bits.values()) == [3, 8, 4, 2]
    assert found.notes["classes"] == ("Linear", "Embedding")


def test_without_a_class_the_rest_is_plain() -> None:
    found = groups((["re:.*experts.*"], INT4), (["re:.*experts.*gate"], None))
    assert found.default is None
    assert found.scheme_for("model.layers.0.self_attn.q_proj") is None
    assert found.scheme_for("model.layers.0.mlp.experts.1.up_proj") is not None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"group_size": None}, ("tensor", None, None)),
        ({"group_size": -1}, ("channel", None, None)),
        ({"group_size": 64}, ("group", 64, None)),
        ({"strategy": "block", "block_structure": [128, 64]}, ("block", None, (128, 64))),
        ({"strategy": "block", "block_structure": "128x64"}, ("block", None, (128, 64))),
    ],
)
def test_inferred_strategies(args: dict[str, Any], expected: tuple[Any, ...]) -> None:
    scheme = groups((["Linear"], {"num_bits": 8, "type": "int"} | args)).default
    assert scheme is not None
    assert (scheme.strategy, scheme.group_size, scheme.block_shape) == expected


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("group", "group"),
        (True, "group"),
        ("dynamic", "group"),
        ("weight", "weight"),
        ("static", "static"),
        (False, None),
    ],
)
def test_activation_order(written: object, read: str | None) -> None:
    found = groups((["Linear"], INT4 | {"actorder": written}))
    assert found.default is not None and found.default.act_order == read
    assert found.notes["actorder"] == {"group_0": written}


def test_formats_of_groups() -> None:
    raw = {"a": {"targets": ["Linear"], "weights": INT4, "format": "int-quantized"}}
    found = declare({"format": "mixed-precision", "config_groups": raw})
    assert found.default is not None and found.default.format == "int-quantized"


def test_hostile_values() -> None:
    found = declare(
        {
            "format": 3,
            "ignore": "lm_head",
            "version": {},
            "kv_cache_scheme": [1],
            "config_groups": {
                "a": {"targets": ["Linear", 4, "re:("], "weights": {"num_bits": "4", "block_structure": [0, 1]}},
                "b": [],
                "c": {"targets": {}, "weights": {"actorder": "up", "symmetric": 0, "strategy": 1, "group_size": 0}},
                "d": {"targets": None, "weights": 7, "input_activations": 7},
            },
        }
    )
    assert found.default is not None and found.default.num_bits is None
    assert found.notes["unusable_patterns"] == ["re:("]
    keys = {
        "format", "ignore", "version", "kv_cache_scheme", "config_groups.b", "config_groups.a.targets",
        "config_groups.a.weights.num_bits", "config_groups.a.weights.block_structure", "config_groups.c.targets",
        "config_groups.c.weights.actorder", "config_groups.c.weights.symmetric", "config_groups.c.weights.strategy",
        "config_groups.c.weights.group_size", "config_groups.d.weights", "config_groups.d.input_activations",
    }  # fmt: skip
    assert set(found.ill_typed) == {f"quantization_config.{key}" for key in keys}
    assert declare({"config_groups": []}).default is None
    assert declare({"config_groups": {"": {}}}).default is None
    assert declare({}).default is None


@pytest.mark.engine
def test_targets_match_as_in_the_tool() -> None:
    match = pytest.importorskip("compressed_tensors.utils.match")
    names = ["model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj", "lm_head", "model.layers.10.mlp.gate"]
    targets = [r"re:.*layers\.1.*", "lm_head", "re:model.layers.0", r"re:.*gate$", "re:down_proj", "down_proj"]
    for target in targets:
        found = groups(([target], INT4))
        for name in names:
            assert (found.scheme_for(name) is not None) == match.match_name(name, target), (target, name)

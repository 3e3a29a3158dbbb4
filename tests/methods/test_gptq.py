"""GPTQ's config, AutoGPTQ's sidecar and GPTQModel's per-module table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from degarble.formats.scheme import Scheme
from degarble.methods.gptq import GptqMethod
from degarble.methods.interface import Declaration

BASE = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}


def declare(raw: dict[str, Any], file: str = "config.json") -> Declaration:
    return GptqMethod().declare(raw, file=file, key="quantization_config" if file == "config.json" else "")


def test_the_usual_config() -> None:
    found = declare(BASE)
    assert found.default == Scheme(
        method="gptq", type="int", num_bits=4, strategy="group", group_size=128, symmetric=True
    )
    assert (found.method, found.sidecar, found.ill_typed, found.rules, found.skips) == ("gptq", False, (), (), ())
    assert found.is_implicitly_plain("lm_head")
    assert found.is_implicitly_plain("model.layers.3.mlp.gate")
    assert not found.is_implicitly_plain("model.layers.3.mlp.gate_proj")


def test_a_whole_row_and_order() -> None:
    scheme = declare(BASE | {"group_size": -1, "desc_act": True, "checkpoint_format": "gptq_v2"}).default
    assert scheme is not None
    assert (scheme.strategy, scheme.group_size, scheme.act_order, scheme.format) == (
        "channel",
        None,
        "group",
        "gptq_v2",
    )


def test_sidecar_of_autogptq() -> None:
    """No quant_method; `is_marlin_format` names a layout of its own."""
    found = declare({"bits": 4, "group_size": 128, "is_marlin_format": True}, "quantize_config.json")
    assert found.sidecar and found.default is not None
    assert (found.default.format, found.default.symmetric) == ("marlin", None)


def test_golden(golden: Path) -> None:
    raw = json.loads((golden / "gptqmodel-gptq-asym-actorder-g64" / "config.json").read_bytes())
    found = declare(raw["quantization_config"])
    assert found.default == Scheme(
        method="gptq",
        format="gptq",
        type="int",
        num_bits=4,
        strategy="group",
        group_size=64,
        symmetric=False,
        act_order="group",
    )
    assert (found.version, found.ill_typed) == ("7.7.0", ())
    assert found.notes["desc_act"] is True


def test_a_quantised_head_is_not_implicit() -> None:
    assert not declare(BASE | {"lm_head": True}).is_implicitly_plain("lm_head")


def test_the_dynamic_table() -> None:
    """The first key that matches from the start decides; what an override leaves out is the default's."""
    found = declare(
        BASE
        | {
            "dynamic": {
                r"-:.*\.mlp\.gate$": {},
                r"+:.*layers\.1\..*down_proj": {"bits": 8, "group_size": 32, "desc_act": True},
                r".*down_proj": {"bits": 3, "sym": False},
            }
        }
    )
    assert found.default is not None
    assert found.scheme_for("model.layers.0.mlp.gate") is None
    assert found.scheme_for("model.layers.0.mlp.gate_proj") == found.default
    eight = found.scheme_for("model.layers.1.mlp.down_proj")
    assert eight is not None
    assert (eight.num_bits, eight.group_size, eight.act_order, eight.symmetric) == (8, 32, "group", True)
    three = found.scheme_for("model.layers.2.mlp.down_proj")
    assert three is not None and (three.num_bits, three.group_size, three.symmetric) == (3, 128, False)
    (skips,) = found.skips
    assert (skips.key, len(skips.entries)) == ("quantization_config.dynamic", 3)


def test_lists_of_optimum() -> None:
    found = declare(BASE | {"modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.down_proj"]]})
    assert found.scheme_for("model.layers.0.mlp.down_proj") == found.default
    assert found.scheme_for("model.layers.0.mlp.up_proj") is None


def test_skip_list() -> None:
    (skips,) = declare(BASE | {"modules_to_not_convert": ["lm_head", "mtp"]}).skips
    assert (skips.key, skips.entries) == ("quantization_config.modules_to_not_convert", ("lm_head", "mtp"))


def test_hostile_values() -> None:
    found = declare(
        {
            "bits": "4",
            "group_size": 0,
            "desc_act": "yes",
            "sym": 1,
            "checkpoint_format": [],
            "lm_head": "no",
            "dynamic": {"+:(": {}, "-:a{99999999}": 3, "+:x": {"bits": True}},
            "modules_in_block_to_quantize": [[3], "a"],
            "modules_to_not_convert": {"a": 1},
            "meta": [],
        }
    )
    keys = ("bits", "group_size", "desc_act", "sym", "checkpoint_format", "lm_head", "dynamic.-:a{99999999}")
    more = ("dynamic.+:x.bits", "modules_in_block_to_quantize", "modules_to_not_convert", "meta")
    assert set(found.ill_typed) == {f"quantization_config.{key}" for key in (*keys, *more)}
    assert found.notes["unusable_patterns"] == ["+:("]
    assert found.default is not None and found.default.num_bits is None
    assert declare({"bits": 10**30, "group_size": -5}).default == Scheme(method="gptq", type="int")
    assert declare({"dynamic": 7}).ill_typed == ("quantization_config.dynamic",)
    assert declare({"dynamic": False}).ill_typed == ()

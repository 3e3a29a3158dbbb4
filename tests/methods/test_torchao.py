"""Configs of torchao."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from degarble.methods.interface import Declaration
from degarble.methods.torchao import TorchAoMethod


def declare(**raw: Any) -> Declaration:
    return TorchAoMethod().declare({"quant_method": "torchao", **raw}, file="config.json", key="quantization_config")


def test_golden(golden: Path) -> None:
    raw = json.loads((golden / "torchao-int8wo" / "config.json").read_bytes())["quantization_config"]
    found = declare(**raw)
    assert found.default is not None and found.ill_typed == ()
    assert (found.default.type, found.default.num_bits, found.default.strategy) == ("int", 8, "channel")
    assert found.default.activations is None and found.is_implicitly_plain("lm_head")


@pytest.mark.parametrize(
    ("label", "kind", "bits", "activations"),
    [
        ("Int8WeightOnlyConfig", "int", 8, None),
        ("Int8DynamicActivationInt8WeightConfig", "int", 8, "dynamic"),
        ("Int8DynamicActivationInt4WeightConfig", "int", 4, "dynamic"),
        ("Int4WeightOnlyConfig", "int", 4, None),
        ("Float8DynamicActivationFloat8WeightConfig", "float", 8, "dynamic"),
        ("Float8StaticActivationFloat8WeightConfig", "float", 8, "static"),
        ("SomethingElse", None, None, None),
    ],
)
def test_classes(label: str, kind: str | None, bits: int | None, activations: str | None) -> None:
    scheme = declare(quant_type={"default": {"_type": label, "_data": {"group_size": 64}}}).default
    assert scheme is not None
    assert (scheme.type, scheme.num_bits, scheme.group_size, scheme.activations) == (kind, bits, 64, activations)


@pytest.mark.parametrize(("label", "bits"), [("int8_weight_only", 8), ("int4_weight_only", 4), ("int8wo", 8)])
def test_old_labels(label: str, bits: int) -> None:
    scheme = declare(quant_type=label, quant_type_kwargs={"group_size": 32}).default
    assert scheme is not None and (scheme.num_bits, scheme.group_size) == (bits, 32)


def test_a_table_of_modules() -> None:
    int8, int4 = {"_type": "Int8WeightOnlyConfig"}, {"_type": "Int4WeightOnlyConfig"}
    table = {"re:model\\..*\\.mlp\\..*": int4, "_default": int8, "model.layers.0.mlp.up_proj": int8, "lm_head": None}
    node = {"_type": "FqnToConfig", "_data": {"fqn_to_config": table}}
    found = declare(quant_type={"default": node})
    bits = [found.scheme_for(f"model.layers.0.{name}") for name in ("self_attn.q_proj", "mlp.down_proj", "mlp.up_proj")]
    assert [scheme and scheme.num_bits for scheme in bits] == [8, 4, 8]
    assert found.scheme_for("lm_head") is None


def test_hostile_values() -> None:
    assert declare().default is None
    assert declare(quant_type=3).ill_typed == ("quantization_config.quant_type",)
    assert declare(quant_type={"default": [1]}).default is None
    assert declare(quant_type={"default": {"_type": "FqnToConfig", "_data": {"fqn_to_config": 3}}}).rules == ()
    bad = {"_type": "FqnToConfig", "_data": {"fqn_to_config": {"re:(": {"_type": "Int8WeightOnlyConfig"}}}}
    assert declare(quant_type={"default": bad}).scheme_for("x") is None


def test_a_pattern_that_never_ends_is_given_up() -> None:
    table = {"re:(?:a|aa|aaa)+(?:a|aa)+(?:a|aaa)+[cd]": {"_type": "Int8WeightOnlyConfig"}}
    node = {"_type": "FqnToConfig", "_data": {"fqn_to_config": table}}
    found = declare(quant_type={"default": node})
    start = time.monotonic()
    assert found.scheme_for("a" * 40 + "b") is None
    assert time.monotonic() - start < 5

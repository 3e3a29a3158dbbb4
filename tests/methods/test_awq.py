"""AWQ's config in AutoAWQ's two spellings and GPTQModel's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from degarble.formats.scheme import Scheme
from degarble.methods.awq import AwqMethod
from degarble.methods.interface import Declaration


def declare(raw: dict[str, Any], file: str = "config.json") -> Declaration:
    return AwqMethod().declare(raw, file=file, key="quantization_config")


ASYMMETRIC = Scheme(
    method="awq", format="gemm", type="int", num_bits=4, strategy="group", group_size=128, symmetric=False
)


def test_both_spellings() -> None:
    new = declare({"bits": 4, "group_size": 128, "zero_point": True, "version": "GEMM"})
    old = declare({"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "gemm"}, "quant_config.json")
    assert new.default == old.default == ASYMMETRIC
    assert (new.sidecar, old.sidecar) == (False, True)
    assert new.is_implicitly_plain("lm_head") and not new.is_implicitly_plain("model.layers.0.mlp.gate")


@pytest.mark.parametrize("name", ["autoawq-gemm-g128", "gptqmodel-awq-gemm-g128", "auto-round-awq-w4-asym-g128"])
def test_golden(golden: Path, name: str) -> None:
    found = declare(json.loads((golden / name / "config.json").read_bytes())["quantization_config"])
    assert found.default == ASYMMETRIC
    assert found.ill_typed == ()
    assert found.version == {"gptqmodel-awq-gemm-g128": "7.7.0", "auto-round-awq-w4-asym-g128": "0.16.1"}.get(name)


def test_symmetric_whole_rows_and_exceptions() -> None:
    found = declare(
        {
            "bits": 4,
            "group_size": -1,
            "zero_point": False,
            "version": "gemv",
            "lm_head": True,
            "modules_to_not_convert": ["visual", 3],
            "dynamic": {"-:.*gate": {}, ".*down_proj": {"group_size": 64}},
        }
    )
    assert found.default is not None
    assert (found.default.strategy, found.default.group_size, found.default.symmetric) == ("channel", None, True)
    assert found.scheme_for("model.layers.0.mlp.gate") is None
    down = found.scheme_for("model.layers.0.mlp.down_proj")
    assert down is not None and (down.strategy, down.group_size, down.format) == ("group", 64, "gemv")
    assert [skips.key for skips in found.skips] == [
        "quantization_config.dynamic",
        "quantization_config.modules_to_not_convert",
    ]
    assert found.ill_typed == ("quantization_config.modules_to_not_convert",)
    assert not found.is_implicitly_plain("lm_head")


def test_hostile_values() -> None:
    found = declare({"bits": 4.0, "group_size": None, "zero_point": "true", "version": 1})
    assert set(found.ill_typed) == {f"quantization_config.{key}" for key in ("bits", "zero_point", "version")}
    assert found.default == Scheme(method="awq", type="int")

"""Configs of bitsandbytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from degarble.methods.bitsandbytes import BitsandbytesMethod
from degarble.methods.interface import Declaration


def declare(**raw: object) -> Declaration:
    return BitsandbytesMethod().declare(raw, file="config.json", key="quantization_config")


@pytest.mark.parametrize(("name", "label"), [("bitsandbytes-nf4", "nf4"), ("bitsandbytes-nf4-dq", "nf4-nested")])
def test_golden(golden: Path, name: str, label: str) -> None:
    raw = json.loads((golden / name / "config.json").read_bytes())["quantization_config"]
    found = declare(**raw)
    assert found.default is not None and (found.default.format, found.default.num_bits) == (label, 4)
    assert found.ill_typed == () and found.is_implicitly_plain("lm_head")
    assert found.notes["storage"] == "uint8"


def test_int8() -> None:
    found = declare(load_in_8bit=True, llm_int8_skip_modules=["lm_head", "gate"])
    assert found.default is not None and (found.default.num_bits, found.default.type) == (8, "int")
    assert found.skips[0].entries == ("lm_head", "gate")


def test_hostile_values() -> None:
    assert declare().default is None
    found = declare(load_in_4bit="yes", load_in_8bit=1, bnb_4bit_quant_type=7, llm_int8_skip_modules="x")
    assert found.default is None
    assert set(found.ill_typed) == {
        f"quantization_config.{key}" for key in ("load_in_4bit", "load_in_8bit", "llm_int8_skip_modules")
    }
    odd = declare(load_in_4bit=True, load_in_8bit=True, bnb_4bit_quant_type="af4", bnb_4bit_use_double_quant=True)
    assert odd.default is not None and odd.default.format is None and odd.notes["both_widths"]

"""Recipes from YAML: what they say, what is refused with its place, and rules for single modules in both layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from degarble.errors import UsageError
from degarble.evidence import Evidence, Settings
from degarble.report.interface import Status
from degarble.target import open_target
from degarble_engine.quantize.quantizing import quantize
from degarble_engine.quantize.recipe import Recipe
from degarble_engine.quantize.recipe_file import MAX_DEPTH, read_recipe
from degarble_engine.quantize.rule import Rule
from tests.degarble_engine.quantize.tiny_jobs import source_of

WHOLE = """
scheme: W4A16_ASYM
group_size: 32
method: rtn
ignore: ["re:.*gate_proj"]
rules:
  - targets: ["re:.*down_proj"]
    scheme: W8A16
    group_size: 16
  - targets: [model.layers.0.self_attn.o_proj]
    scheme: none
"""


def read(tmp_path: Path, text: str) -> dict[str, Any]:
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    return read_recipe(str(file))


def test_a_whole_recipe(tmp_path: Path) -> None:
    found = Recipe(**read(tmp_path, WHOLE))
    assert found.scheme == "W4A16_ASYM" and found.group_size == 32 and found.ignore == ("re:.*gate_proj",)
    assert found.rules[0] == Rule(targets=("re:.*down_proj",), scheme="W8A16", group_size=16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scheme: [W4A16", "line 1: expected YAML"),
        ("- a", "expected options by name, found list"),
        ("schema: W4A16", "'schema': expected one of scheme, method"),
        ("group_size: big", "Expected `int"),
        ("rules:\n  - {targets: [a], scheme: W4A16, bits: 3}", "unknown field `bits`"),
        ("ignore: &a [x]\nrules: *a", "line 2: aliases"),
        ("ignore: " + "[" * 50 + "]" * 50, f"more than {MAX_DEPTH} levels"),
        ("scheme: !!python/object/apply:os.system [ls]", "expected YAML"),
        ("", "found NoneType"),
    ],
)
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    with pytest.raises(UsageError, match=message.replace("[", r"\[")):
        read(tmp_path, text)


@pytest.mark.parametrize("export", ["compressed-tensors", "gptq"])
def test_modules_with_schemes_of_their_own(export: str, tmp_path: Path) -> None:
    rules = (
        Rule(targets=("re:.*down_proj",), scheme="W8A16", group_size=16),
        Rule(targets=("model.layers.0.self_attn.o_proj",), scheme="none"),
    )
    recipe = Recipe(scheme="W4A16", method="rtn", group_size=32, export=export, rules=rules)
    report = quantize(str(source_of("llama")), str(tmp_path / "out"), recipe)
    assert report.status is Status.OK, report.findings
    modules = Evidence(open_target(str(tmp_path / "out")), Settings()).get("modules")
    forms = {name: module.form for name, module in modules.items()}
    assert forms["model.layers.1.mlp.down_proj"].scheme.num_bits == 8
    assert forms["model.layers.1.mlp.up_proj"].scheme.num_bits == 4
    assert (
        not forms["model.layers.0.self_attn.o_proj"].is_quantized
        and forms["model.layers.1.self_attn.o_proj"].is_quantized
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert len(config["config_groups"] if export == "compressed-tensors" else config["dynamic"]) >= 2


def test_a_layout_of_one_scheme_refuses_rules(tmp_path: Path) -> None:
    rules = (Rule(targets=("re:.*down_proj",), scheme="W4A16", group_size=16),)
    with pytest.raises(UsageError, match="one scheme for all modules"):
        quantize(
            str(source_of("llama")),
            str(tmp_path / "out"),
            Recipe(scheme="W4A16", method="rtn", group_size=32, export="awq", rules=rules),
        )

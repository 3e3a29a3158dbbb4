"""QNT106: entries that may legally match nothing, and those that may not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from degarble.finding import Severity
from tests.checks.quantization.judging import judge, quantization, write

LEGAL = (
    "lm_head",
    "model.embed_tokens",
    "model.norm",
    "model.layers.0.input_layernorm",
    "re:.*norm.*",
    "re:.*lm_head",
    "re:vision_tower.*",
    "re:.*visual.*",
    "model.vision_tower.encoder.layers.0.fc1",
    "multi_modal_projector.linear_1",
    "re:.*mtp.*",
    "Linear",
    "model.layers.0.self_attn.o_proj",
)


@pytest.mark.parametrize("entry", LEGAL)
def test_legal_entries_are_silent(golden: Path, entry: str) -> None:
    """Heads, norms, towers, MTP and class names are listed as a matter of course."""
    found = judge(
        "QNT106", golden / "llm-compressor-fp8-dynamic", lambda w: quantization(w).update(ignore=["lm_head", entry])
    )
    assert found == []


@pytest.mark.parametrize(
    "entry",
    ["lm_head.linear", "model.layers.0.self_attn.o_prj", "re:.*attn_output$", "layers.0.self_attn.o_proj", "re:("],
)
def test_entries_without_effect_are_named(golden: Path, entry: str) -> None:
    """A short name is nothing to compared whole names; a broken expression is nothing to anybody."""
    found = judge(
        "QNT106", golden / "llm-compressor-fp8-dynamic", lambda w: quantization(w).update(ignore=["lm_head", entry])
    )
    assert [finding.severity for finding in found] == [Severity.WARNING]
    assert found[0].measured["entry"] == entry
    assert found[0].location.key == "quantization_config.ignore"


def test_router_of_a_dense_model_is_an_info(golden: Path) -> None:
    """Tools write one list for a family with and without experts."""
    found = judge(
        "QNT106",
        golden / "llm-compressor-fp8-dynamic",
        lambda w: quantization(w).update(ignore=["lm_head", "model.layers.0.mlp.shared_expert_gate"]),
    )
    assert [finding.severity for finding in found] == [Severity.INFO]


def test_misspelt_entry_names_the_module_that_was_meant(golden: Path) -> None:
    """The router is stored plain; its entry carries the suffix of a wrapper."""

    def misspell(workspace):
        config = quantization(workspace)
        config["ignore"] = [e + ".linear" if e.endswith("gate") else e for e in config["ignore"]]

    found = judge("QNT106", golden / "moe-deepseekv3-llmc-w4a16-g64", misspell)
    assert [finding.location.module for finding in found] == ["model.layers.1.mlp.gate"]


@pytest.mark.parametrize("value", [None, 7, "lm_head", [None, 3], {"a": 1}, ["a" * 100_000], ["(a+)+$"]])
def test_any_list_is_survived(golden: Path, value: object) -> None:
    """Whatever stands in the config, the rule does not crash."""
    for name in ("autoawq-gemm-g128", "gptqmodel-gptq-sym-g128", "own-deepseek-fp8-block-576"):
        for key in ("modules_to_not_convert", "dynamic"):
            judge("QNT106", golden / name, partial(write, key=key, value=value))

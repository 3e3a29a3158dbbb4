"""ENG701, ENG702 and ENG704: arithmetic, and what the user's options change."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.evidence import Settings
from degarble.finding import Severity
from tests.checks.quantization.judging import judge, quantization

ORDERED = "gptqmodel-gptq-asym-actorder-g64"


def test_table_names_the_limiting_module(golden: Path) -> None:
    """k_proj has 128 rows, one block: no two ranks can share it."""
    (found,) = judge("ENG701", golden / "llm-compressor-fp8-block")
    assert found.severity is Severity.INFO
    assert found.measured["largest_tensor_parallel"] == 1
    assert found.location.module == "model.layers.0.self_attn.k_proj"


def test_experts_are_counted(golden: Path) -> None:
    """Four experts go to one, two or four ranks."""
    (found,) = judge("ENG701", golden / "moe-qwen3moe-llmc-w4a16-g64")
    assert found.measured["expert_parallel"] == [1, 2, 4]


@pytest.mark.parametrize(
    ("settings", "severities"),
    [
        (Settings(tensor_parallel=1), []),
        (Settings(tensor_parallel=2), []),
        (Settings(tensor_parallel=3), [Severity.WARNING]),
        (Settings(tensor_parallel=3, engine="vllm"), [Severity.ERROR]),
        (Settings(tensor_parallel=1, expert_parallel=3), [Severity.WARNING]),
        (Settings(tensor_parallel=1, expert_parallel=4), []),
    ],
)
def test_degrees_that_were_asked_for(golden: Path, settings: Settings, severities: list[Severity]) -> None:
    """An impossible wish is a warning; an engine makes it an error."""
    found = judge("ENG701", golden / "moe-qwen3moe-llmc-w4a16-g64", settings=settings)
    assert [finding.severity for finding in found] == severities


@pytest.mark.parametrize("name", ["llama.cpp-q4_k_m", "gguf-py-q8_0"])
def test_gguf_is_not_judged(golden: Path, name: str) -> None:
    """llama.cpp splits in its own way."""
    for rule in ("ENG701", "ENG704"):
        assert judge(rule, golden / name, settings=Settings(tensor_parallel=2)) == []


@pytest.mark.parametrize(
    ("settings", "severities"),
    [
        (Settings(), [Severity.INFO]),
        (Settings(tensor_parallel=1), []),
        (Settings(tensor_parallel=2), [Severity.WARNING]),
        (Settings(tensor_parallel=2, engine="sglang"), [Severity.WARNING]),
        (Settings(tensor_parallel=2, engine="transformers"), []),
    ],
)
def test_act_order_under_tp(golden: Path, settings: Settings, severities: list[Severity]) -> None:
    """Only several ranks, and only engines with reports."""
    assert [finding.severity for finding in judge("ENG702", golden / ORDERED, settings=settings)] == severities


def test_one_scale_per_row_has_no_order(golden: Path) -> None:
    """`desc_act` with group size -1 shuffles nothing that a rank could miss."""
    found = judge(
        "ENG702",
        golden / "llm-compressor-fp8-dynamic",
        lambda w: quantization(w)["config_groups"]["group_0"]["weights"].update(actorder="group"),
        Settings(tensor_parallel=2),
    )
    assert found == []


def test_kernel_limits_are_one_info(golden: Path) -> None:
    """320 inputs are no multiple of 128: slower kernels, sound results."""
    (found,) = judge("ENG704", golden / "own-deepseek-fp8-block-576")
    assert found.severity is Severity.INFO
    assert len(found.all_places) == 7

"""Look-alikes that statistics of values must not report, and what they say where nothing can be told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from degarble.api import check, check_source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.finding import Severity
from degarble.formats import affine
from degarble.report.interface import Report
from degarble.runner import Outcome
from degarble.target import open_target
from tests.checks.weights.synthetic import write_qwen2

STATISTICAL = (
    "WGT206", "WGT207", "WGT208", "WGT209", "WGT210", "WGT211", "WGT216", "WGT221", "WGT222", "WGT225", "WGT227",
    "WGT228", "WGT229",
)  # fmt: skip
OF_TOOLS = (
    "auto-round-awq-w4-asym-g128", "gptqmodel-awq-gemm-g128", "gptqmodel-gptq-asym-actorder-g64",
    "gptqmodel-gptq-sym-g128", "llama.cpp-q4_0", "llama.cpp-q4_k_m", "llm-compressor-fp8-block",
    "llm-compressor-fp8-dynamic", "llm-compressor-fp8-static-kvcache", "llm-compressor-mxfp4", "llm-compressor-nvfp4",
    "llm-compressor-w4a16-awq-asym-g128", "llm-compressor-w4a16-gptq-actorder-weight-g64",
    "llm-compressor-w4a16-gptq-asym-g128", "llm-compressor-w4a16-gptq-sym-g128", "llm-compressor-w8a8-int8",
    "modelopt-fp8", "modelopt-int4-awq", "modelopt-nvfp4", "quanto-int8", "torchao-int8wo",
)  # fmt: skip
"""Made of base-bf16 by 14 tools, with and without folds; some have keys of their own for what others fold."""


def found(report: Report, *rules: str) -> list[str]:
    """Warnings and errors of some rules."""
    wanted = rules or STATISTICAL
    return [f"{f.rule}: {f.message}" for f in report.findings if f.rule in wanted and f.severity is not Severity.INFO]


def outcome(report: Report, rule: str) -> tuple[Outcome, str]:
    """What became of one rule."""
    result = next(one for one in report.results if one.rule == rule)
    return result.outcome, result.reason or ""


@pytest.mark.parametrize("name", OF_TOOLS)
def test_files_of_tools_agree_with_their_source(golden: Path, name: str) -> None:
    """Folds, rounding, error compensation, clipping and GGUF's order of rows are no differences."""
    report = check(golden / name, reference=golden / "base-bf16", select_rules=["WGT227", "WGT228"])
    assert outcome(report, "WGT228")[0] is not Outcome.SKIPPED
    assert found(report) == []


def test_autoawq_folded_its_scales_twice(golden: Path) -> None:
    """This file multiplies columns with the square of what it divided the norms by; its own oracle is the file."""
    report = check(golden / "autoawq-gemm-g128", reference=golden / "base-bf16", select_rules=["WGT227"])
    finding = next(f for f in report.findings if f.location.module == "model.layers.1.self_attn.q_proj")
    assert finding.measured["median_log_error"] == pytest.approx(0.79, abs=0.02)


def test_another_model_is_no_reference(golden: Path, tmp_path: Path) -> None:
    one = write_qwen2(tmp_path / "one", 4)

    def reseed(arrays: dict[str, np.ndarray]) -> None:
        rng = np.random.default_rng(7)
        for name, array in arrays.items():
            arrays[name] = rng.permutation(array.reshape(-1)).reshape(array.shape)

    other = write_qwen2(tmp_path / "other", 4, reseed)
    report = check(one, reference=other, select_rules=["WGT228"])
    finding = next(f for f in report.findings if f.rule == "WGT228")
    assert len(finding.all_places) > 20
    assert abs(float(str(finding.measured["cosine"]))) < 0.1


def test_random_weights_are_not_judged(tmp_path: Path) -> None:
    report = check(write_qwen2(tmp_path / "model", 8))
    assert found(report) == []
    is_skipped, reason = outcome(report, "WGT209")
    assert is_skipped is Outcome.SKIPPED
    assert "untrained" in reason


def test_two_layers_are_no_peers(golden: Path) -> None:
    report = check(golden / "base-bf16", select_rules=["WGT216"])
    assert outcome(report, "WGT216") == (Outcome.OK, "")
    evidence = Evidence(open_target(golden / "base-bf16"), Settings())
    assert evidence.find("magnitudes") is None


@pytest.mark.parametrize("deviation", [0.5, 1.0])
def test_folds_between_linears_are_healthy(golden: Path, deviation: float) -> None:
    """AWQ divides rows of up and v by what it multiplies columns of down and o with."""
    report = _changed(golden / "base-bf16", lambda weights: _fold(weights, deviation))
    assert found(report) == []


@pytest.mark.parametrize("deviation", [0.5, 1.0])
def test_folds_between_linears_leave_the_reference_alike(golden: Path, deviation: float) -> None:
    """Factors that differ much leave a cosine of 0.6 to down_proj as it is stored; column by column it is 1."""
    healthy = golden / "base-bf16"
    report = _changed(healthy, lambda weights: _fold(weights, deviation), Evidence(open_target(healthy), Settings()))
    assert outcome(report, "WGT228")[0] is Outcome.OK
    assert found(report, "WGT227", "WGT228") == []


def _fold(weights: dict[str, np.ndarray], deviation: float) -> None:
    rng = np.random.default_rng(3)
    for layer in range(2):
        root = f"model.layers.{layer}.mlp."
        factors = np.exp(rng.normal(0, deviation, weights[f"{root}down_proj.weight"].shape[1]))
        weights[f"{root}up_proj.weight"] = weights[f"{root}up_proj.weight"] / factors[:, None]
        weights[f"{root}down_proj.weight"] = weights[f"{root}down_proj.weight"] * factors
        factors = np.exp(rng.normal(0, deviation, weights[f"{root}up_proj.weight"].shape[1]))
        norm = f"model.layers.{layer}.post_attention_layernorm.weight"
        weights[norm] = weights[norm] / factors
        for part in ("gate_proj", "up_proj"):
            weights[f"{root}{part}.weight"] = weights[f"{root}{part}.weight"] * factors


def _changed(path: Path, change: Callable[[dict[str, np.ndarray]], None], reference: Evidence | None = None) -> Report:
    workspace = Workspace(open_target(path))
    modules = Evidence(workspace.base, Settings()).get("modules")
    names = {m.any_part.name: m for m in modules.values() if m.layer is not None}
    weights = {name: module.dequantize().astype(np.float64) for name, module in names.items()}
    before = dict(weights)
    change(weights)
    for name, values in weights.items():
        if values is not before[name]:
            workspace.set(name, values.astype(names[name].array("payload").dtype))
    return check_source(workspace.source(), reference=reference)


@pytest.mark.parametrize(("mean", "is_reported"), [(0.1, False), (0.2, True)])
def test_weights_with_a_mean_are_a_hint_at_most(golden: Path, mean: float, is_reported: bool) -> None:
    """Zero points off by one shift codes by a whole step; a mean of 0.2 deviations shifts them by 0.7."""
    path = golden / "llm-compressor-w4a16-gptq-sym-g128"
    workspace = Workspace(open_target(path))
    module = Evidence(workspace.base, Settings()).get("modules")["model.layers.1.mlp.up_proj"]
    values = np.random.default_rng(5).normal(mean, 1, module.form.shape or ()).astype(np.float32) * 0.05
    codes, scales, _ = affine.quantize(values, 4, 128, symmetric=True)
    for name, array in module.replace(codes=codes, scales=scales.astype(np.float32)).items():
        workspace.set(name, array)
    report = check_source(workspace.source(), chosen=["WGT206"])
    assert bool(report.findings) is is_reported
    assert all(f.severity is Severity.WARNING and f.confidence == "hint" for f in report.findings)


def test_two_exchanged_layers_are_named(golden: Path) -> None:
    workspace = Workspace(open_target(golden / "base-bf16"))
    modules = Evidence(workspace.base, Settings()).get("modules")
    for module in modules.values():
        if module.layer == 0:
            other = modules[module.name.replace("layers.0.", "layers.1.")]
            workspace.set(module.any_part.name, other.array("payload"))
            workspace.set(other.any_part.name, module.array("payload"))
    reference = Evidence(open_target(golden / "base-bf16"), Settings())
    report = check_source(workspace.source(), reference=reference, chosen=["WGT227", "WGT228"])
    finding = next(f for f in report.findings if f.rule == "WGT228")
    assert finding.measured["holds"] == "model.layers.1.mlp.down_proj"
    assert len(finding.all_places) == 14
    assert found(report, "WGT227") == []


def test_header_level_reads_no_weights(golden: Path) -> None:
    report = check(golden / "base-bf16", reference=golden / "base-bf16", level="header")
    assert outcome(report, "WGT228") == (Outcome.SKIPPED, "reads tensor contents, and --level header was asked for")

"""Healthy values that resemble faults, and faults that only deeper models can have."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Patient, faults
from degarble.finding import Severity
from degarble.runner import Outcome
from degarble.target import open_target
from tests.checks.quantization.judging import judge, judge_workspace
from tests.checks.weights.synthetic import Arrays, write_qwen2
from tests.planting import points_at

LAYERS = 6
DEEP = [f for f in faults() if f.name.startswith(("key-bias-outlier", "norm-plus-one", "norm-shrunk"))]


@pytest.mark.parametrize("fault", DEEP, ids=lambda fault: fault.name)
def test_peers_show_the_fault(fault, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    def small_norms(arrays: Arrays) -> None:
        for name in [name for name in arrays if "norm" in name]:
            arrays[name] = arrays[name] * 0.25

    source = open_target(write_qwen2(tmp_path / "model", LAYERS, small_norms))
    workspace = Workspace(source)
    place = fault.function(Patient(evidence=Evidence(source, Settings()), workspace=workspace, rng=random.Random(1)))
    found = judge_workspace(fault.rule, workspace)
    assert len(found) == 1 and points_at(found[0], place)


def test_three_layers_are_no_peers(tmp_path: Path) -> None:
    def large_bias(arrays: Arrays) -> None:
        arrays["model.layers.0.self_attn.k_proj.bias"][:] = 600

    shallow = open_target(write_qwen2(tmp_path / "shallow", 3, large_bias))
    (result,) = check_source(shallow, Settings(), None, ["WGT218"]).results
    assert result.outcome is Outcome.SKIPPED and "fewer than 4 layers" in (result.reason or "")
    assert len(judge("WGT218", write_qwen2(tmp_path / "deep", 4, large_bias))) == 1


def test_padding_rows_of_the_vocabulary_may_be_zero(tmp_path: Path) -> None:
    def pad(arrays: Arrays) -> None:
        arrays["model.embed_tokens.weight"][-16:] = 0
        arrays["model.embed_tokens.weight"][0] = 0  # <pad>

    assert judge("WGT226", write_qwen2(tmp_path / "padded", 2, pad)) == []


def test_one_ordinary_zero_row_is_found(tmp_path: Path) -> None:
    def kill(arrays: Arrays) -> None:
        arrays["model.embed_tokens.weight"][17] = 0

    (found,) = judge("WGT226", write_qwen2(tmp_path / "dead", 2, kill))
    assert (found.location.row, found.location.token) == (17, "word17")


def test_a_deepened_model_repeats_layers_by_design(tmp_path: Path) -> None:
    def repeat(pairs: list[tuple[int, int]], arrays: Arrays) -> None:
        for first, later in pairs:
            for name in [name for name in arrays if name.startswith(f"model.layers.{first}.")]:
                arrays[name.replace(f".{first}.", f".{later}.", 1)] = arrays[name]

    many = judge("WGT220", write_qwen2(tmp_path / "m", LAYERS, lambda a: repeat([(0, 3), (1, 4), (2, 5)], a)))
    one = judge("WGT220", write_qwen2(tmp_path / "o", LAYERS, lambda a: repeat([(1, 4)], a)))
    assert {finding.severity for finding in many} == {Severity.INFO}
    assert [finding.severity for finding in one] == [Severity.ERROR] and one[0].location.layer == 4


def test_rows_padded_alike_in_every_layer_are_legal(tmp_path: Path) -> None:
    def pad(arrays: Arrays) -> None:
        for name in [name for name in arrays if name.endswith(("gate_proj.weight", "up_proj.weight"))]:
            arrays[name][-32:] = 0

    def lose(arrays: Arrays) -> None:
        arrays["model.layers.2.mlp.up_proj.weight"][8:40] = 0

    assert judge("WGT205", write_qwen2(tmp_path / "padded", LAYERS, pad)) == []
    (found,) = judge("WGT205", write_qwen2(tmp_path / "lost", LAYERS, lose))
    assert found.measured["dead_rows"] == 32 and found.location.row == 8


def test_untrained_norms_are_information(tmp_path: Path) -> None:
    def ones(arrays: Arrays) -> None:
        arrays["model.norm.weight"] = np.ones_like(arrays["model.norm.weight"])

    found = judge("WGT217", write_qwen2(tmp_path / "ones", 2, ones))
    assert [finding.severity for finding in found] == [Severity.INFO]


def test_zero_scales_over_zero_codes_are_legal(golden: Path) -> None:
    """An AWQ group of zeros with a scale of zero, which a padding row may have."""
    path = golden / "llm-compressor-w4a16-gptq-sym-g128"
    module = Evidence(open_target(path), Settings()).get("modules")["model.layers.0.mlp.up_proj"]
    codes, scales = module.codes().copy(), module.scales().copy()
    codes[5], scales[5] = 8, 0

    def edit(workspace: Workspace) -> None:
        for name, array in module.replace(codes=codes, scales=scales).items():
            workspace.set(name, array)

    assert judge("WGT202", path, edit) == []


def test_per_tensor_fp8_scales_are_information(golden: Path) -> None:
    found = judge("WGT213", golden / "modelopt-fp8")
    assert found and {finding.severity for finding in found} == {Severity.INFO}

"""QNT120: what is plain by design, and both directions."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.checkpoint.workspace import Workspace
from tests.checks.quantization.judging import judge, write
from tests.checks.quantization.moe_patients import deepseek_fp8
from tests.checks.quantization.test_stored_plain_but_declared_quantized import make_plain

MODULE = "model.layers.2.self_attn.o_proj"


@pytest.fixture
def patient(golden: Path, tmp_path: Path) -> Path:
    """DeepSeek's FP8 with a prediction layer."""
    return deepseek_fp8(golden, tmp_path / "deepseek")


def test_joint_projection_and_ends_are_plain_by_design(patient: Path) -> None:
    assert judge("QNT120", patient) == []


def test_listed_and_plain_agree(patient: Path) -> None:
    def edit(workspace: Workspace) -> None:
        make_plain(workspace, MODULE)
        write(workspace, "modules_to_not_convert", [MODULE])

    assert judge("QNT120", patient, edit) == []


def test_listed_and_quantised_disagree(patient: Path) -> None:
    (finding,) = judge("QNT120", patient, lambda workspace: write(workspace, "modules_to_not_convert", [MODULE]))
    assert finding.location.module == MODULE
    assert finding.bound == {"declared": "plain"}


def test_decoder_layers_are_another_rule(patient: Path) -> None:
    def edit(workspace: Workspace) -> None:
        make_plain(workspace, "model.layers.1.self_attn.o_proj")

    assert judge("QNT120", patient, edit) == []
    assert len(judge("QNT109", patient, edit)) == 1

"""QNT118 on a family that stores q/k/v and gate/up fused."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.fused_scalar_scale import fused_scalar_scale
from degarble.faults.interface import Patient
from degarble.target import open_target
from tests.checks.quantization.judging import judge_workspace

FUSED = {"self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"), "mlp.gate_up_proj": ("gate_proj", "up_proj")}


@pytest.fixture
def phi(golden: Path) -> Workspace:
    """A Phi-3 with one FP8 scale per output row, fused out of the golden Llama."""
    source = open_target(golden / "llm-compressor-fp8-dynamic")
    modules = Evidence(source, Settings()).get("modules")
    workspace = Workspace(source)
    for layer in range(2):
        for fused, leaves in FUSED.items():
            parent = f"model.layers.{layer}.{fused.partition('.')[0]}"
            parts = [modules[f"{parent}.{leaf}"] for leaf in leaves]
            for role, suffix in parts[0].form.roles.items():
                joined = np.concatenate([part.array(role) for part in parts])
                workspace.add(parts[0].any_part.file, f"model.layers.{layer}.{fused}.{suffix}", joined)
            for part in parts:
                for info in part.parts.values():
                    workspace.drop(info.name)
    workspace.json("config.json").update(model_type="phi3", architectures=["Phi3ForCausalLM"])
    return workspace


def test_row_scales_are_silent(phi: Workspace) -> None:
    """Row scales belong to rows, whatever part they are in."""
    assert judge_workspace("QNT118", phi) == []


def test_scalar_scale_is_the_first_cause(phi: Workspace) -> None:
    """The planted fault: one number for a fused matrix."""
    healthy = phi.source()
    workspace = Workspace(healthy)
    patient = Patient(evidence=Evidence(healthy, Settings()), workspace=workspace, rng=random.Random(0))
    place = fused_scalar_scale(patient)
    known = {finding.fingerprint for finding in check_source(healthy).findings}
    causes = [c.finding for c in check_source(workspace.source()).causes if c.finding.fingerprint not in known]
    assert [finding.rule for finding in causes] == ["QNT118", "QNT118"]
    assert any(place.tensor in {spot.tensor for spot in finding.all_places} for finding in causes)

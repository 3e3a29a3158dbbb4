"""QNT121: names that some engine reads, and names that none does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.finding import Severity
from degarble.registry import Level
from degarble.repairing.plan import Plan, Planner
from degarble.target import open_target
from tests.checks.quantization.judging import judge
from tests.checks.quantization.moe_patients import qwen_modelopt_nvfp4

SHARD = "model.safetensors"
KV = "llm-compressor-fp8-static-kvcache"


def add(workspace: Workspace, *names: str, value: float = 0.5) -> None:
    """One scale under each name."""
    for name in names:
        workspace.add(SHARD, name, np.full(1, value, np.float32))


@pytest.mark.parametrize("below", ["", ".k_proj", ".attn", ".mla_attn.mla_attn", ".qkv_proj"])
def test_what_engines_read_is_silent(golden: Path, below: str) -> None:
    names = [f"model.layers.{layer}.self_attn{below}.k_scale" for layer in (0, 1)]
    assert judge("QNT121", golden / "base-bf16", lambda workspace: add(workspace, *names)) == []


@pytest.mark.parametrize("owner", ["model.layers.0", "layers.0.self_attn", "model.layers.0.self_attn.kv_cache"])
def test_names_that_no_engine_reads(golden: Path, owner: str) -> None:
    (finding,) = judge("QNT121", golden / "base-bf16", lambda workspace: add(workspace, f"{owner}.k_scale"))
    assert finding.severity is Severity.WARNING
    assert finding.location.tensor == f"{owner}.k_scale"
    assert finding.all_places[1].tensor == "model.layers.0.self_attn.k_scale"


def test_other_towers_and_layers_without_attention_are_not_judged(golden: Path) -> None:
    names = ["vision_tower.encoder.layers.0.k_scale", "model.layers.77.k_scale", "kv_cache.k_scale"]
    assert judge("QNT121", golden / "base-bf16", lambda workspace: add(workspace, *names)) == []


def planned(path: Path, change: object, *, unsafe: bool = False) -> Plan:
    """What would be repaired, by headers alone."""
    workspace = Workspace(open_target(path))
    change(workspace)  # type: ignore[operator]
    return Planner(workspace.source(), Settings(level=Level.HEADER), unsafe=unsafe).plan()


def test_the_place_is_spelled_as_in_other_layers(golden: Path, tmp_path: Path) -> None:
    """ModelOpt's scales go back under their projections."""
    path = qwen_modelopt_nvfp4(golden, tmp_path / "qwen")
    name = "model.layers.1.self_attn.v_proj.v_scale"
    found = planned(path, lambda workspace: workspace.rename(name, "model.layers.1.v_scale"))
    assert [(step.repair, step.is_safe) for step in found.steps] == [("move-kv-scale", True)]
    assert name in Evidence(found.workspace.source(), Settings()).get("tensors")


@pytest.mark.parametrize("is_equal", [True, False])
def test_a_place_that_is_taken(golden: Path, is_equal: bool) -> None:
    """An equal copy is dropped; which of two values is right is a judgement."""
    home, stray = "model.layers.0.self_attn.k_scale", "model.layers.0.k_scale"

    def copy(workspace: Workspace) -> None:
        tensor = Evidence(open_target(golden / KV), Settings()).get("tensors")[home]
        value = np.frombuffer(workspace.base.read(SHARD, tensor.start, tensor.nbytes), np.uint16).copy()
        value += 0 if is_equal else 1
        workspace.put(SHARD, stray, "BF16", (1,), (workspace.keep(value),))

    safe = planned(golden / KV, copy)
    assert bool(safe.steps) is is_equal
    found = planned(golden / KV, copy, unsafe=True)
    assert [step.is_safe for step in found.steps] == [is_equal]
    assert stray not in Evidence(found.workspace.source(), Settings()).get("tensors")


def test_two_scales_for_one_place_are_refused(golden: Path) -> None:
    names = [f"model.layers.0.{owner}.k_scale" for owner in ("cache", "mlp")]
    found = planned(golden / "base-bf16", lambda workspace: add(workspace, *names), unsafe=True)
    assert not found.steps and any("claim" in one.reason for one in found.refused)

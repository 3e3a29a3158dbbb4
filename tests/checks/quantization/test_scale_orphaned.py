"""QNT102 beyond the planted faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from degarble.checkpoint.workspace import Workspace
from degarble.finding import Confidence, Severity
from tests.checks.quantization.judging import judge

SHARD = "model.safetensors"


def test_left_over_activation_scale_is_a_warning(golden: Path) -> None:
    def add(workspace: Workspace) -> None:
        workspace.add(SHARD, "model.embed_tokens.input_scale", np.ones(1, np.float32))

    (finding,) = judge("QNT102", golden / "llm-compressor-fp8-static-kvcache", add)
    assert finding.severity is Severity.WARNING


def test_scales_in_a_model_that_is_plain_throughout_are_a_hint(golden: Path) -> None:
    def add(workspace: Workspace) -> None:
        workspace.add(SHARD, "model.layers.0.mlp.up_proj.scales", np.ones(4, np.float32))

    (finding,) = judge("QNT102", golden / "base-bf16", add)
    assert (finding.severity, finding.confidence) == (Severity.WARNING, Confidence.HINT)


def test_every_stray_tensor_is_a_place(golden: Path) -> None:
    name = "model.layers.0.mlp.down_proj.qweight"
    (finding,) = judge("QNT102", golden / "gptqmodel-gptq-asym-actorder-g64", lambda workspace: workspace.drop(name))
    assert {place.tensor.rpartition(".")[2] for place in finding.all_places if place.tensor} == {
        "g_idx",
        "qzeros",
        "scales",
    }


def test_scales_of_the_kv_cache_belong_to_no_weight(golden: Path) -> None:
    assert judge("QNT102", golden / "llm-compressor-fp8-static-kvcache") == []

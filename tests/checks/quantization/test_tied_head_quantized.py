"""QNT114: where a quantised end is legal."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from degarble.checkpoint.workspace import Workspace
from tests.checks.quantization.judging import judge, quantization

NAME = "lm_head"


def add_head(workspace: Workspace) -> None:
    """A quantised head, as torchao stores one."""
    codes = np.random.default_rng(0).integers(-127, 127, (512, 256)).astype(np.int8)
    workspace.add("model.safetensors", f"{NAME}._weight_qdata", codes)
    workspace.add("model.safetensors", f"{NAME}._weight_scale", np.full((512, 1), 0.01, np.float32))


def test_untied_head_may_be_quantised(golden: Path) -> None:
    def edit(workspace: Workspace) -> None:
        add_head(workspace)
        workspace.json("config.json")["tie_word_embeddings"] = False

    assert judge("QNT114", golden / "torchao-int8wo", edit) == []
    assert len(judge("QNT114", golden / "torchao-int8wo", add_head)) == 1


def test_torchao_may_include_both_ends(golden: Path) -> None:
    def edit(workspace: Workspace) -> None:
        add_head(workspace)
        quantization(workspace)["include_input_output_embeddings"] = True

    assert judge("QNT114", golden / "torchao-int8wo", edit) == []


def test_unknown_family_has_a_flag_too(golden: Path) -> None:
    def edit(workspace: Workspace) -> None:
        add_head(workspace)
        workspace.json("config.json").update({"model_type": "unheard_of", "architectures": ["UnheardOf"]})

    assert [f.location.module for f in judge("QNT114", golden / "torchao-int8wo", edit)] == [NAME]

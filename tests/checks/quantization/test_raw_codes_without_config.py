"""QNT103 beyond the planted faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from degarble.api import check, check_source
from degarble.checkpoint.workspace import Workspace
from degarble.finding import Severity
from degarble.target import open_target
from tests.checks.quantization.judging import judge


def undeclare(workspace: Workspace) -> None:
    """Remove the quantisation config from config.json."""
    del workspace.json("config.json")["quantization_config"]


def test_modelopts_own_file_is_enough(golden: Path) -> None:
    assert judge("QNT103", golden / "modelopt-nvfp4", undeclare) == []


def test_sidecar_is_a_warning(golden: Path) -> None:
    (finding,) = judge("QNT103", golden / "quanto-int8")
    assert finding.severity is Severity.WARNING
    assert finding.measured["config"] == "quanto_qmap.json"


def test_file_without_its_folder_is_not_judged(golden: Path) -> None:
    report = check(golden / "llm-compressor-fp8-block" / "model.safetensors", select_rules=["QNT103"])
    assert report.findings == ()


def test_adapter_declares_nothing_of_its_base(golden: Path) -> None:
    def as_adapter(workspace: Workspace) -> None:
        undeclare(workspace)
        workspace.write("adapter_config.json", b'{"peft_type": "LORA"}')

    assert judge("QNT103", golden / "llm-compressor-fp8-block", as_adapter) == []


def test_unreadable_config_is_another_fault(golden: Path) -> None:
    path = golden / "llm-compressor-fp8-block"
    assert judge("QNT103", path, lambda workspace: workspace.truncate("config.json", 40)) == []


def test_mistral_declares_in_params(golden: Path) -> None:
    def rename(workspace: Workspace) -> None:
        workspace.delete("config.json")
        workspace.write("params.json", b'{"dim": 256, "quantization": {"qformat_weight": "fp8_e4m3"}}')

    assert judge("QNT103", golden / "llm-compressor-fp8-dynamic", rename) == []


def test_floats_cast_for_storage_are_a_warning(golden: Path) -> None:
    def drop_scales(workspace: Workspace) -> None:
        undeclare(workspace)
        for name in list(workspace.shard("model.safetensors").tensors):
            if name.endswith("weight_scale"):
                workspace.drop(name)

    (finding,) = judge("QNT103", golden / "llm-compressor-fp8-dynamic", drop_scales)
    assert finding.severity is Severity.WARNING


def test_plain_model_and_int_buffers_are_silent(golden: Path) -> None:
    def add(workspace: Workspace) -> None:
        workspace.add("model.safetensors", "model.layers.0.self_attn.masked_bias", np.zeros((4, 4), np.uint8))

    assert judge("QNT103", golden / "base-bf16", add) == []


def test_declared_codes_of_an_unknown_format_make_the_report_partial(golden: Path) -> None:
    workspace = Workspace(open_target(golden / "llm-compressor-fp8-dynamic"))
    name = "model.layers.0.mlp.down_proj.weight"
    for part in (name, f"{name}_scale"):
        workspace.drop(part)
    workspace.add("model.safetensors", name, np.zeros((256, 512), np.int16))
    report = check_source(workspace.source(), chosen=["QNT103"])
    assert report.status.value == "partial"
    assert any("model.layers.0.mlp.down_proj" in what for what in report.unjudged)

"""QNT104: who is outvoted, and numbers that are written twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.finding import Severity
from degarble.target import open_target
from tests.checks.quantization.judging import judge, quantization, write


def test_the_config_is_outvoted_by_all_modules(golden: Path) -> None:
    """Key, count and both numbers are in the finding."""
    (found,) = judge("QNT104", golden / "autoawq-gemm-g128", lambda w: quantization(w).update(group_size=64))
    assert found.location.file == "config.json" and found.location.key == "quantization_config.group_size"
    assert len(found.all_places) == 14
    assert found.fix is not None and found.fix.safe


def test_rules_for_single_modules_are_followed(golden: Path) -> None:
    """An override that tells the truth is silent, one that does not is named at its module."""
    name = golden / "gptqmodel-gptq-sym-g128"
    key = r"+:.*layers\.0\.mlp\.down_proj$"
    assert judge("QNT104", name, lambda w: quantization(w).update(dynamic={key: {"bits": 4, "group_size": 128}})) == []
    (found,) = judge("QNT104", name, lambda w: quantization(w).update(dynamic={key: {"bits": 4, "group_size": 64}}))
    assert [place.module for place in found.all_places] == ["model.layers.0.mlp.down_proj"]
    assert str(found.location.key).startswith("quantization_config.dynamic")


@pytest.mark.parametrize(
    ("name", "file", "change"),
    [
        ("gptqmodel-gptq-sym-g128", "quantize_config.json", {"bits": 8}),
        ("gptqmodel-gptq-sym-g128", "quantize_config.json", {"group_size": 32}),
        ("modelopt-nvfp4", "hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4", "group_size": 32}}),
    ],
)
def test_sidecar_that_says_something_else_is_a_warning(golden: Path, name: str, file: str, change: dict) -> None:
    """config.json governs, but some loaders open the other file."""
    (found,) = judge("QNT104", golden / name, lambda w: w.json(file).update(change))
    assert found.severity is Severity.WARNING and found.location.file == file


@pytest.mark.parametrize("value", [None, True, "4", -1, 10**40, [], {}, 0])
def test_any_value_is_survived(golden: Path, value: object) -> None:
    """Ill-typed numbers are no numbers."""
    for name in ("autoawq-gemm-g128", "gptqmodel-gptq-sym-g128", "llm-compressor-nvfp4", "own-deepseek-fp8-block-576"):
        for key in ("bits", "group_size", "weight_block_size", "config_groups"):
            edit = partial(write, key=key, value=value)
            judge("QNT104", golden / name, edit)
            judge("QNT105", golden / name, edit)


def test_gguf_experts_of_one_layer_have_one_type(golden: Path) -> None:
    """Old files store experts one by one; kernels take the type of the first for all."""
    path = golden / "llama.cpp-q4_k_m"

    def split(workspace, names):
        shard = workspace.shard("model-Q4_K_M.gguf")
        for expert, name in enumerate(names):
            shard.rename(name, f"blk.0.ffn_down.{expert}.weight")

    tensors = Workspace(open_target(path)).shard("model-Q4_K_M.gguf").tensors
    by_type = {slot.dtype: name for name, slot in tensors.items() if ".ffn_" in name or ".attn_" in name}
    alike = [name for name, slot in tensors.items() if slot.dtype == "GGUF:Q4_K"][:2]
    assert judge("QNT104", path, partial(split, names=alike)) == []
    (found,) = judge("QNT104", path, partial(split, names=[by_type["GGUF:Q4_K"], by_type["GGUF:Q6_K"]]))
    assert str(found.location.tensor).startswith("blk.0.ffn_down.")

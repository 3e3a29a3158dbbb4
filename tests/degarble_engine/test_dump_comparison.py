"""An engine's dump beside the walk: silent where it is healthy, and the guilty module or operator first where it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from degarble.errors import TargetError, UsageError
from degarble.finding import Finding, Severity
from degarble.report.interface import Report, Status
from degarble_engine.cli.compare import compare
from degarble_engine.comparison import Question
from degarble_engine.dump_comparison import compare_dump
from tests.degarble_engine.dumps.engine import (
    Values,
    activations,
    fused,
    with_residual,
    write_msprobe,
    write_npy,
    write_safetensors,
    write_sglang,
)
from tests.degarble_engine.tiny_models import folder

WRITERS: dict[str, Callable[[Values, Path], Path]] = {
    "sglang": lambda values, out: write_sglang(with_residual(fused(values)), out),
    "msprobe": lambda values, out: write_msprobe(fused(values), out),
    "npy": write_npy,
    "safetensors": write_safetensors,
}


@pytest.fixture(scope="module")
def healthy() -> Values:
    return activations()


def compared(path: Path, family: str = "llama") -> Report:
    found: Report = compare_dump(str(folder(family)), str(path), Question())
    return found


def first(report: Report) -> Finding:
    assert report.causes, report.findings
    return report.causes[0].finding


@pytest.mark.parametrize("kind", WRITERS)
def test_a_healthy_engine_is_silent_in_every_form(kind: str, healthy: Values, tmp_path: Path) -> None:
    report = compared(WRITERS[kind](healthy, tmp_path))
    assert not [one for one in report.findings if one.severity is not Severity.INFO], first(report).message
    assert report.comparison is not None
    modules: Any = report.comparison["modules"]
    told = {one["module"] for one in modules}
    assert "model.layers.3.self_attn.o_proj" in told and "model.layers.0.self_attn.attention" in told
    assert all(one["relative_l2"] < 0.01 for one in modules if one["relative_l2"] is not None)
    assert sum(one["relative_l2"] is not None for one in modules) >= 32
    layers: Any = report.comparison["layers"]
    assert all(0 < one["inherited_error"] < 0.05 for one in layers)


def scaled(name: str, factor: float) -> Callable[[nn.Module], None]:
    return lambda model: model.get_submodule(name).weight.data.mul_(factor)


def other_rotary(model: Any) -> None:
    model.model.rotary_emb.inv_freq.mul_(3.0)


def other_activation(model: Any) -> None:
    model.model.layers[2].mlp.act_fn = nn.GELU()


def spoiled_norm(model: Any) -> None:
    model.model.layers[1].post_attention_layernorm.weight.data.add_(0.3)


@pytest.mark.parametrize("kind", ["sglang", "npy"])
@pytest.mark.parametrize(
    ("spoil", "module"),
    [
        (scaled("model.layers.2.self_attn.o_proj", 0.9), "model.layers.2.self_attn.o_proj"),
        (scaled("model.layers.0.mlp.up_proj", 1.3), "model.layers.0.mlp.gate_up_proj"),
        (spoiled_norm, "model.layers.1.post_attention_layernorm"),
        (other_activation, "model.layers.2.mlp"),
    ],
)
def test_the_guilty_module_is_first(kind: str, spoil: Any, module: str, tmp_path: Path) -> None:
    report = compared(WRITERS[kind](activations(spoil=spoil), tmp_path))
    wanted = module.replace("gate_up_proj", "up_proj") if kind == "npy" else module
    assert first(report).location.module == wanted
    assert len(report.causes) == 1 and "on its own input" in first(report).message


def test_attention_that_differs_everywhere_is_one_cause(tmp_path: Path) -> None:
    report = compared(write_sglang(fused(activations(spoil=other_rotary)), tmp_path))
    assert len(report.causes) == 1
    assert "attention (rotary embedding" in first(report).message and len(first(report).all_places) == 4
    departure = next(one for one in report.findings if one.rule == "DIV901")
    assert departure.location.layer == 0


def test_values_that_are_not_finite_are_put_to_the_module_that_makes_them(tmp_path: Path) -> None:
    def break_one(model: Any) -> None:
        model.get_submodule("model.layers.1.mlp.down_proj").weight.data[3, 5] = float("nan")

    report = compared(write_safetensors(activations(spoil=break_one), tmp_path))
    assert first(report).location.module == "model.layers.1.mlp.down_proj"
    assert "not finite of finite ones" in first(report).message and len(report.causes) == 1


def test_ranks_are_put_together(healthy: Values, tmp_path: Path) -> None:
    """Two ranks: each has half of every part of the fused projections, and all of what is reduced."""
    values = fused(healthy)
    for rank in range(2):
        write_sglang({name: share(name, value, rank) for name, value in values.items()}, tmp_path, rank)
    report = compared(tmp_path)
    assert not report.causes and not report.unjudged
    assert report.comparison is not None
    modules: Any = report.comparison["modules"]
    assert any(one["module"].endswith("qkv_proj") and one["relative_l2"] is not None for one in modules)


def share(name: str, value: Tensor, rank: int) -> Tensor:
    widths = {
        "qkv_proj.output": [64, 32, 32],
        "gate_up_proj.output": [128, 128],
        "o_proj.input": [64],
        "down_proj.input": [128],
    }
    for ending, parts in widths.items():
        if name.endswith(ending):
            return torch.cat([part.chunk(2, 1)[rank] for part in value.split(parts, 1)], 1)
    return value


def test_padding_behind_the_tokens_is_left_out(healthy: Values, tmp_path: Path) -> None:
    padded = {
        name: value if not value.is_floating_point() else torch.cat([value, value.new_full((3, value.shape[1]), 9.0)])
        for name, value in healthy.items()
    }
    assert not compared(write_safetensors(padded, tmp_path)).causes


def test_what_cannot_be_laid_beside_is_said(healthy: Values, tmp_path: Path) -> None:
    values = {
        name: value
        for name, value in healthy.items()
        if ".layers.3." not in name and not name.endswith("layers.3.output")
    }
    values["model.layers.1.mlp.down_proj.output"] = values["model.layers.1.mlp.down_proj.output"][:, :7]
    values["model.layers.2.mlp.down_proj.output"] = values["model.layers.2.mlp.down_proj.output"][:2]
    report = compared(write_safetensors(values, tmp_path))
    assert report.status is Status.PARTIAL
    assert (
        "expected 64 values a token, found 1 tensors of shape [16, 7]"
        in report.unjudged["layers.1.mlp.down_proj output 0"]
    )
    assert "expected 16 tokens, found 2" in report.unjudged["layers.2.mlp.down_proj output 0"]
    assert "nothing of 1 of 4 layers, of layer 3 first" in report.unjudged["layers"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "expected tensors named after modules, found none"),
        ({"model.norm.output": torch.zeros(16, 64), "input_ids": torch.arange(16)}, "no tensor in it stands beside"),
        ({"model.layers.0.mlp.output": torch.zeros(16, 64)}, "no input_ids"),
        ({"model.layers.0.mlp.output": torch.zeros(16, 64), "input_ids": torch.arange(16), "positions": torch.arange(16) + 5},
         "expected a prompt from its first token on, found position 5"),
        ({"model.layers.0.mlp.output": torch.zeros(2, 64), "input_ids": torch.tensor([3, 4000])}, "token id 4000 is outside"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_says_why(values: Values, message: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=message):
        compared(write_npy(values, tmp_path))


def test_the_command(healthy: Values, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_npy(healthy, tmp_path / "dump")
    assert compare(str(folder("llama")), dump=str(tmp_path / "dump"), format="html", quiet=True) == 0
    assert "Error in the candidate&#x27;s own run" in capsys.readouterr().out


def test_one_of_a_reference_and_a_dump_is_needed() -> None:
    with pytest.raises(UsageError, match="one of the two"):
        compare(str(folder("llama")))
    with pytest.raises(UsageError, match="one of the two"):
        compare(str(folder("llama")), "x", dump="y")

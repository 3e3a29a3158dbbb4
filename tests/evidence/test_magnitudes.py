"""Sizes that are healthy by design: folds, the first layer, and neurons that dwarf all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from degarble.api import check
from degarble.evidence import Evidence, Settings
from degarble.evidence.magnitudes import row_excess
from degarble.target import open_target
from tests.checks.weights.synthetic import Arrays, write_qwen2

LAYERS = 6
ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def reported(folder: Path) -> set[str | None]:
    """Modules that WGT229 names."""
    report = check(folder, select_rules=["WGT229"])
    return {place.module for finding in report.findings for place in finding.all_places}


def scaled(layer: int, *leaves: str, by: float, norm: float = 1.0) -> Callable[[Arrays], None]:
    """A change: some linears of a layer times a factor, its first norm times another."""

    def change(arrays: Arrays) -> None:
        root = f"model.layers.{layer}."
        for leaf in leaves:
            arrays[f"{root}{leaf}.weight"] = arrays[f"{root}{leaf}.weight"] * by
        arrays[f"{root}input_layernorm.weight"] = arrays[f"{root}input_layernorm.weight"] * norm

    return change


@pytest.mark.parametrize("by", [1 / 16, 16.0])
def test_what_a_norm_undoes_is_a_fold(tmp_path: Path, by: float) -> None:
    assert reported(write_qwen2(tmp_path, LAYERS, scaled(3, *ATTENTION, by=by, norm=1 / by))) == set()


def test_what_no_norm_undoes_is_reported(tmp_path: Path) -> None:
    folder = write_qwen2(tmp_path, LAYERS, scaled(3, *ATTENTION, by=16.0))
    assert reported(folder) == {f"model.layers.3.{leaf}" for leaf in ATTENTION}


def test_up_against_down_is_a_fold(tmp_path: Path) -> None:
    def change(arrays: Arrays) -> None:
        scaled(2, "mlp.up_proj", by=16.0)(arrays)
        scaled(2, "mlp.down_proj", by=1 / 16)(arrays)

    assert reported(write_qwen2(tmp_path, LAYERS, change)) == set()


def test_up_without_down_is_reported(tmp_path: Path) -> None:
    folder = write_qwen2(tmp_path, LAYERS, scaled(2, "mlp.up_proj", by=16.0))
    assert reported(folder) == {"model.layers.2.mlp.up_proj"}


@pytest.mark.parametrize(("by", "is_reported"), [(1 / 50, False), (50.0, False), (1000.0, True)])
def test_the_first_layer_has_a_size_of_its_own(tmp_path: Path, by: float, is_reported: bool) -> None:
    """SmolLM2's first v_proj is 50 times smaller than the others once norms are fused."""
    folder = write_qwen2(tmp_path, LAYERS, scaled(0, "self_attn.v_proj", by=by))
    assert (reported(folder) == {"model.layers.0.self_attn.v_proj"}) is is_reported


@pytest.mark.parametrize(
    ("leaves", "judged", "octaves"),
    [
        (("mlp.up_proj",), "mlp.up_proj", 4.0),
        (("mlp.up_proj", "mlp.gate_proj"), "mlp.up_proj", 0.0),
        (("mlp.down_proj",), "mlp.down_proj", 4.0),
        (("mlp.down_proj", "self_attn.o_proj"), "mlp.down_proj", 0.0),
    ],
)
def test_a_large_neuron_or_channel_is_large_in_its_partners(
    tmp_path: Path, leaves: tuple[str, ...], judged: str, octaves: float
) -> None:
    """Row 17 of some linears of layer 3, 16 times as large."""

    def change(arrays: Arrays) -> None:
        for leaf in leaves:
            arrays[f"model.layers.3.{leaf}.weight"][17] *= 16

    modules = Evidence(open_target(write_qwen2(tmp_path, LAYERS, change)), Settings()).get("modules")
    assert row_excess(modules[f"model.layers.3.{judged}"], 17, modules) == pytest.approx(octaves, abs=0.6)

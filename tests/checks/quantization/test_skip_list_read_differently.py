"""QNT107: readings against the disk, with and without a named engine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Patient
from degarble.faults.skip_list_read_differently import layer_entry_takes_tenth_along
from degarble.finding import Severity
from degarble.target import open_target
from tests.checks.quantization.judging import judge, judge_workspace, quantization

FP8 = "own-deepseek-fp8-block-576"


def list_router(workspace):
    """The list that Qwen wrote for dense models too."""
    quantization(workspace)["modules_to_not_convert"] = ["lm_head", "model.layers.0.mlp.gate"]


@pytest.mark.parametrize(
    ("engine", "version", "severity"),
    [
        (None, None, Severity.WARNING),
        ("vllm", None, None),
        ("sglang", "0.5.10", Severity.ERROR),
        ("sglang", "0.5.23", None),
        ("sglang", None, Severity.WARNING),
        ("transformers", "5.20.0", Severity.ERROR),
        ("transformers", "5.24.0", None),
    ],
)
def test_router_entry_of_a_dense_model(
    golden: Path, engine: str | None, version: str | None, severity: Severity | None
) -> None:
    """Substrings and bare prefixes take `gate_proj` along; whole names and boundaries do not."""
    found = judge("QNT107", golden / FP8, list_router, Settings(engine=engine, engine_version=version))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    if found:
        assert found[0].location.module == "model.layers.0.mlp.gate_proj"


def test_table_counts_every_engine(golden: Path) -> None:
    """The finding says how many modules each reading gets wrong."""
    (found,) = judge("QNT107", golden / FP8, list_router)
    counts = {key.removeprefix("modules misread by "): value for key, value in found.measured.items()}
    assert counts["vllm"] == 0 and counts["sglang <0.5.11"] == 1 and counts["transformers >=5.0,<5.21"] == 1


@pytest.mark.parametrize("entries", [[], ["gate"], ["lm_head"], ["model.layers.0.self_attn.rotary_emb"]])
def test_harmless_lists_are_silent(golden: Path, entries: list[str]) -> None:
    """Routers of native FP8 need no entry, and a component `gate` is no `gate_proj` to a reader of components."""
    found = judge(
        "QNT107",
        golden / "moe-qwen3moe-llmc-w4a16-g64",
        lambda w: quantization(w)["ignore"].extend(entries),
    )
    assert found == []


def test_module_without_any_entry_is_left_to_another_rule(golden: Path) -> None:
    """A plain router that no entry has to do with was forgotten, not read differently."""
    found = judge(
        "QNT107", golden / "moe-qwen3moe-llmc-w4a16-g64", lambda w: quantization(w).update(ignore=["lm_head"])
    )
    assert found == []


def test_short_entry_that_all_engines_miss_is_an_error(golden: Path) -> None:
    """compressed-tensors compares whole names; the router is plain and named by its end only."""
    found = judge(
        "QNT107",
        golden / "moe-qwen3moe-llmc-w4a16-g64",
        lambda w: quantization(w).update(ignore=["lm_head", "mlp.gate"]),
    )
    assert [finding.severity for finding in found] == [Severity.ERROR]
    assert len(found[0].all_places) == 2


def test_layer_one_takes_layers_ten_and_eleven_along(golden: Path) -> None:
    """Twelve copies of one layer; the list says `model.layers.1`."""
    source = open_target(golden / FP8)
    grown = Workspace(source)
    shard = grown.shard("model.safetensors")
    for name, slot in dict(shard.tensors).items():
        for layer in range(1, 12) if ".layers.0." in name else ():
            data = source.read("model.safetensors", slot.segments[0].start, slot.nbytes)
            shard.set(name.replace(".layers.0.", f".layers.{layer}."), slot.dtype, slot.shape, data)
    grown.json("config.json")["num_hidden_layers"] = 12
    healthy = grown.source()
    workspace = Workspace(healthy)
    patient = Patient(evidence=Evidence(healthy, Settings()), workspace=workspace, rng=random.Random(1))
    place = layer_entry_takes_tenth_along(patient)
    found = judge_workspace("QNT107", workspace)
    codes = next(finding for finding in found if finding.fold == "warning codes")
    layers = {spot.layer for spot in codes.all_places}
    assert layers == {10, 11}
    assert place.module in {spot.module for spot in codes.all_places}

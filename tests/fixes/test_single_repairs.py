"""Edges of single repairs that no planted fault reaches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from degarble.checkpoint.rope import RopeSource
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.fixes.invert_global_scale import reciprocal
from degarble.fixes.repack_codes import permuted
from degarble.formats.interface import StoredModule
from degarble.registry import Level
from degarble.repairing.plan import Plan, Planner
from degarble.target import open_target
from tests.conftest import unpacked_golden

HEADER = Settings(level=Level.HEADER)
Change = Callable[[Workspace, dict[str, StoredModule]], None]


def sick(golden: str, change: Change) -> RopeSource:
    """A golden checkpoint with a change of the test's own."""
    source = open_target(unpacked_golden() / golden)
    workspace = Workspace(source)
    change(workspace, dict(Evidence(source, Settings()).get("modules")))
    return workspace.source()


def plan(source: RopeSource, settings: Settings = HEADER, *, unsafe: bool = False) -> Plan:
    """What would be repaired."""
    return Planner(source, settings, unsafe=unsafe).plan()


def write(workspace: Workspace, arrays: dict[str, Any]) -> None:
    """Arrays by tensor name."""
    for name, array in arrays.items():
        workspace.set(name, array)


def _block_of_zeros(workspace: Workspace, modules: dict[str, StoredModule], value: int) -> None:
    """The first block of a module holds `value` everywhere, and its scale is NaN."""
    module = next(m for m in modules.values() if m.form.format == "nvfp4")
    codes, scale = module.codes().copy(), module.array("scale").copy()
    codes[0, :16] = value
    scale[0, 0] = np.nan
    write(workspace, {**module.replace(codes=codes), module.parts[module.form.roles["scale"]].name: scale})


@pytest.mark.parametrize("value", [0, 8])
def test_a_block_of_zeros_gets_any_scale(value: int) -> None:
    """+0 and -0 alike; the decoded weights are zero before and after."""
    source = sick("llm-compressor-nvfp4", lambda work, modules: _block_of_zeros(work, modules, value))
    found = plan(source, Settings())
    assert [step.repair for step in found.steps] == ["finite-zero-blocks"] and not found.after.causes
    modules = Evidence(found.workspace.source(), Settings()).get("modules")
    module = next(m for m in modules.values() if m.form.format == "nvfp4")
    assert not module.dequantize()[0, :16].any()


def test_a_block_of_values_needs_its_scale() -> None:
    found = plan(sick("llm-compressor-nvfp4", lambda work, modules: _block_of_zeros(work, modules, 3)), Settings())
    assert not found.steps
    assert "other values than zero" in found.refused[0].reason and "weight_scale" in found.refused[0].fetch[0]


def _regrouped(workspace: Workspace, modules: dict[str, StoredModule]) -> None:
    """One module in groups of half the size, each with a scale of its own."""
    module = next(m for m in modules.values() if m.name.endswith("down_proj"))
    axes = {role: module.format.axes[role][1][0] for role in ("scale", "zero_point") if module.part(role) is not None}  # type: ignore[index]
    for role, axis in axes.items():
        table = np.repeat(module.array(role), 2, axis=axis)
        if role == "scale":
            index = [slice(None)] * table.ndim
            index[axis] = slice(1, None, 2)
            table[tuple(index)] *= 1.5
        workspace.set(module.parts[module.form.roles[role]].name, table)
    if module.part("g_idx") is not None:
        stored = module.array("g_idx")
        size = stored.size // (int(stored.max()) + 1) // 2
        workspace.set(
            module.parts[module.form.roles["g_idx"]].name, (np.arange(stored.size) // size).astype(stored.dtype)
        )


@pytest.mark.parametrize("golden", ["gptqmodel-gptq-sym-g128", "llm-compressor-w4a16-gptq-sym-g128"])
def test_a_module_with_groups_of_its_own_gets_a_rule(golden: str) -> None:
    """Nothing is cut where scales differ; the rule is a judgement."""
    source = sick(golden, _regrouped)
    safe = plan(source)
    assert not safe.steps and "--unsafe" in safe.refused[0].reason
    found = plan(source, unsafe=True)
    assert [step.repair for step in found.steps] == ["write-module-override"] and not found.after.causes
    assert {edit.file for edit in found.steps[0].edits} == {"config.json"}


def _one_too_high(workspace: Workspace, modules: dict[str, StoredModule]) -> None:
    """Zero points of which none stands at the end of the range, one too high."""
    module = next(m for m in modules.values() if m.name.endswith("down_proj"))
    zeros = module.zeros()
    assert zeros is not None
    write(workspace, module.replace(zeros=np.clip(zeros, 1, 13) + 1))


def test_zero_points_that_were_not_cut_off_are_shifted_back_exactly() -> None:
    """Field by field, and without a judgement."""
    source = sick("gptqmodel-gptq-asym-actorder-g64", _one_too_high)
    found = plan(source, Settings())
    assert [(step.repair, step.is_safe) for step in found.steps] == [("shift-zero-points", True)]
    assert not found.after.causes
    before, after = (
        next(m for m in Evidence(one, Settings()).get("modules").values() if m.name.endswith("down_proj")).zeros()
        for one in (source, found.workspace.source())
    )
    assert (after == before - 1).all()


def _trailing(workspace: Workspace, modules: dict[str, StoredModule]) -> None:
    raw = workspace.base.read("model.safetensors")
    workspace.write("SHA256SUMS", f"{hashlib.sha256(raw).hexdigest()}  model.safetensors\n".encode())
    workspace.append("model.safetensors", bytes(100))


def test_a_digest_proves_where_a_file_ends() -> None:
    """With it, cutting is safe; without, a judgement."""
    found = plan(sick("base-bf16", _trailing), Settings())
    assert [(step.repair, step.is_safe) for step in found.steps] == [("cut-trailing-bytes", True)]
    healthy = (unpacked_golden() / "base-bf16" / "model.safetensors").read_bytes()
    assert found.workspace.source().read("model.safetensors") == healthy


def _two_faults(workspace: Workspace, modules: dict[str, StoredModule]) -> None:
    """A wrong size, and a module whose scale is lost."""
    workspace.json("config.json")["vocab_size"] *= 2
    module = next(m for m in modules.values() if m.name.endswith("o_proj"))
    workspace.drop(module.parts[module.form.roles["scale"]].name)


def test_what_can_be_repaired_is_repaired_beside_what_cannot() -> None:
    found = plan(sick("gptqmodel-gptq-sym-g128", _two_faults))
    assert [step.finding.rule for step in found.steps] == ["CFG102"]
    assert [one.finding.rule for one in found.refused] == ["QNT101"]
    assert found.after.exit_code() == 1


def test_a_bug_in_a_repair_costs_only_that_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan goes on, and says so."""
    from degarble.fixes import correct_config_key

    def broken(job: object) -> None:
        raise ZeroDivisionError("planted by the test")

    monkeypatch.setitem(correct_config_key.SOLVERS, "CFG102", broken)
    found = plan(sick("gptqmodel-gptq-sym-g128", lambda work, modules: _two_faults(work, modules)))
    assert not found.steps and any("a bug of ours" in one.reason for one in found.refused)


def test_reciprocal_gives_back_what_was_stored() -> None:
    values = np.random.default_rng(0).uniform(1e-6, 1e3, 2000).astype(np.float32)
    inverted = np.array([reciprocal(np.float32(1 / value).reshape(1))[0] for value in values])
    assert (np.float32(1) / inverted == np.float32(1) / values).mean() > 0.99
    assert np.abs(inverted - values).max() <= np.spacing(values).max()


def test_permuted_is_the_inverse_of_packing() -> None:
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    values = np.arange(48).reshape(16, 3)
    packed = values.reshape(-1, 8, 3)[:, order].reshape(values.shape)
    assert (permuted(packed, order) == values).all()


def test_spilled_tensors_are_read_back(tmp_path: Path) -> None:
    """Large new tensors wait in a file without a name."""
    from degarble.checkpoint.spill import SMALL_BYTES, SpillFile

    spill = SpillFile(tmp_path)
    small, large = spill.keep(b"x" * 10), spill.keep(b"y" * SMALL_BYTES)
    another = spill.keep(b"z" * SMALL_BYTES)
    assert small.data is not None and large.data is None and not list(tmp_path.iterdir())
    view = RopeSource(open_target(unpacked_golden() / "base-bf16"), {"file": (another, small, large)})
    assert view.read("file") == b"z" * SMALL_BYTES + b"x" * 10 + b"y" * SMALL_BYTES

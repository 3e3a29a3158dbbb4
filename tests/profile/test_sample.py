"""Module profiles of whole checkpoints: healthy golden ones, damaged copies, batches against single modules."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from degarble.checkpoint.tensor_data import Array
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.executor import ThreadExecutor
from degarble.formats.interface import StoredModule
from degarble.profile import sample
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.sample import profile_modules, spread
from degarble.target import open_target
from tests.conftest import unpacked_golden

FOLDERS = sorted(path.name for path in unpacked_golden().iterdir() if path.is_dir())
INTEGERS = ("gptq", "awq", "compressed_pack", "compressed_int", "modelopt_int4", "quanto", "torchao")


def evidence_of(folder: Path, *, exhaustive: bool = False) -> Evidence:
    return Evidence(open_target(next(folder.glob("*.gguf"), folder)), Settings(exhaustive=exhaustive))


@pytest.mark.parametrize("name", FOLDERS)
def test_every_matrix_of_a_healthy_checkpoint_has_a_sane_profile(golden: Path, name: str) -> None:
    evidence = evidence_of(golden / name, exhaustive=True)
    profiles, modules = evidence.get("module_profiles"), evidence.get("modules")
    assert not evidence.coverage.unjudged
    matrices = [m for m in modules.values() if m.kind == "linear" and m.payload and len(m.payload.shape) > 1]
    assert {module.name for module in matrices} <= set(profiles)
    for module in matrices:
        profile = profiles[module.name]
        assert profile.is_exhaustive
        assert_values(profile, module)
        assert profile.values.nonfinite == 0 and 0.001 < profile.values.rms < 30
        assert profile.num_dead_rows == 0 == len(profile.dead_rows)
        if module.form.format in INTEGERS:
            assert profile.codes is not None and abs(profile.codes.shift) < (0.4 if profile.codes.num_bits < 8 else 0.8)
            assert 0.45 < profile.codes.upper_half < 0.65
        if profile.scales is not None:
            assert profile.scales.nonfinite == 0 and profile.scales.zeros == 0


def assert_values(profile: ModuleProfile, module: StoredModule) -> None:
    if module.payload is not None and module.payload.dtype.startswith("GGUF:") and not module.form.is_quantized:
        return
    values = module.dequantize().reshape(profile.num_outputs, -1)
    rms = np.sqrt(np.mean(np.square(values, dtype=np.float64)))
    assert profile.values.rms == pytest.approx(rms, rel=1e-4)
    assert profile.values.absmax == pytest.approx(float(np.abs(values).max()), rel=1e-5)


@pytest.mark.parametrize("name", ["moe-qwen3moe-llmc-w4a16-g64", "gptqmodel-gptq-asym-actorder-g64", "modelopt-nvfp4"])
def test_batches_equal_single_modules(golden: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = evidence_of(golden / name)
    together = evidence.get("module_profiles")
    monkeypatch.setattr(sample, "BATCH_VALUES", 1)
    modules, tensors = (evidence.get(one) for one in ("modules", "profiles"))
    alone = profile_modules(modules.classes(), tensors, ThreadExecutor(1)).profiles
    assert alone == together


def test_a_sample_is_spread_and_stated(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MIN_VALUES", 4096)
    evidence = evidence_of(golden / "llm-compressor-w4a16-gptq-asym-g128")
    profile = evidence.get("module_profiles")["model.layers.0.mlp.up_proj"]
    assert not profile.is_exhaustive
    assert profile.outputs[0][0] == 0 and profile.outputs[-1][1] == profile.num_outputs == 512
    assert profile.num_values == 16 * 256 == sum(profile.codes.histogram)
    assert profile.scales.shape == (512, 2)


def test_spread_is_even_and_aligned() -> None:
    assert spread(100, 8, 4) == ((0, 4), (96, 100))
    runs = spread(4096, 64, 8)
    assert len(runs) == 8 and all(start % 8 == 0 and stop - start == 8 for start, stop in runs)
    assert max(np.diff([start for start, _ in runs])) <= 4096 / 8 + 80


def replaced(golden: Path, name: str, module_name: str, **parts: Array) -> Evidence:
    """A copy in which one module stores other values."""
    workspace = Workspace(open_target(golden / name))
    module = Evidence(workspace.source(), Settings()).get("modules")[module_name]
    for tensor, values in module.replace(**parts).items():
        workspace.set(tensor, values)
    return Evidence(workspace.source(), Settings())


@pytest.mark.parametrize(
    "name",
    [
        "gptqmodel-gptq-sym-g128",
        "gptqmodel-gptq-asym-actorder-g64",
        "autoawq-gemm-g128",
        "llm-compressor-w4a16-gptq-asym-g128",
        "llm-compressor-w4a16-gptq-sym-g128",
        "llm-compressor-mxfp4",
        "llm-compressor-w8a8-int8",
        "llm-compressor-nvfp4",
        "llm-compressor-fp8-dynamic",
        "quanto-int8",
        "modelopt-int4-awq",
    ],
)
def test_dead_rows_are_all_found(golden: Path, name: str) -> None:
    module_name = "model.layers.1.mlp.gate_proj"
    module = evidence_of(golden / name).get("modules")[module_name]
    codes, zeros, index = module.codes().copy(), module.zeros(), module.group_index()
    dead = (3, 100, 101, 511)
    for row in dead:
        codes[row] = 0 if zeros is None else zeros[row] if index is None else zeros[row][index]
    profile = replaced(golden, name, module_name, codes=codes).get("module_profiles")[module_name]
    assert (profile.dead_rows, profile.num_dead_rows) == (dead, 4)


def test_one_broken_module_of_a_batch_is_named(golden: Path) -> None:
    evidence = evidence_of(golden / "autoawq-gemm-g128")
    modules = evidence.get("modules")
    example, members = next((one, all_of) for one, all_of in modules.classes() if one.name.endswith("up_proj"))
    info = members[1].part("scale")
    assert info is not None
    short = msgspec.structs.replace(info, nbytes=info.nbytes - 2)
    broken = msgspec.structs.replace(members[1], parts={**members[1].parts, "scales": short})
    result = profile_modules([(example, [members[0], broken])], evidence.get("profiles"), ThreadExecutor(1))
    assert set(result.profiles) == {members[0].name}
    assert set(result.unread) == {broken.name}

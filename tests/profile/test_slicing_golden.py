"""Slices of every module of every healthy checkpoint are the slices of its dequantised values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from degarble.checkpoint.tensor_data import DTYPES
from degarble.evidence import Evidence, Settings
from degarble.evidence.modules import Modules
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import can_slice, num_outputs, quantum, stack_inputs, stack_outputs
from degarble.profile.code_groups import values_of
from degarble.target import open_target
from tests.conftest import unpacked_golden

FOLDERS = sorted(path.name for path in unpacked_golden().iterdir() if path.is_dir())


def modules_of(folder: Path) -> Modules:
    gguf = next(folder.glob("*.gguf"), None)
    found: Modules = Evidence(open_target(gguf or folder), Settings()).get("modules")
    return found


def rows_of(module: StoredModule) -> np.ndarray:
    info = module.payload
    assert info is not None
    if info.dtype.startswith("GGUF:") and not module.form.is_quantized:
        plain = module.reader.raw(info).view(DTYPES[info.dtype.removeprefix("GGUF:")])
        return plain.astype(np.float32).reshape(num_outputs(module), -1)
    return module.dequantize().reshape(num_outputs(module), -1)


@pytest.mark.parametrize("name", FOLDERS)
def test_outputs_and_inputs(golden: Path, name: str) -> None:
    sliced = 0
    for example, members in modules_of(golden / name).classes():
        if not can_slice(example):
            assert example.form.shape is None or len(example.form.shape) < 2 or not example.form.is_quantized
            continue
        some = members[:2] if example.part("g_idx") is None else members[:1]
        step, total = quantum(example), num_outputs(example)
        runs = [(0, step), (total // 2 // step * step, total // 2 // step * step + step), (total - step, total)]
        stacked = stack_outputs(some, runs)
        wanted = np.concatenate([rows_of(module)[start:stop] for module in some for start, stop in runs])
        assert np.array_equal(stacked.dequantize(), wanted, equal_nan=True), example.name
        assert np.allclose(values_of(stacked), wanted, rtol=1e-6, atol=0, equal_nan=True), example.name
        _check_inputs(example)
        sliced += 1
    assert sliced


def _check_inputs(module: StoredModule) -> None:
    values, inputs = rows_of(module), shape_of(module)[-1]
    done = 0
    for length in (32, 64, 128, 256):
        if length * 2 > inputs:
            continue
        runs = [(0, length), (inputs - length, inputs)]
        try:
            part = stack_inputs(module, runs)
        except ValueError:
            continue
        wanted = np.concatenate([values[:, start:stop] for start, stop in runs], axis=1)
        assert np.array_equal(part.dequantize(), wanted), (module.name, length)
        done += 1
    is_uncuttable = module.form.format == "bitsandbytes_4bit" or (module.form.format == "gguf" and inputs < 512)
    assert done or len(shape_of(module)) != 2 or is_uncuttable, module.name


def test_a_run_that_cuts_a_word_is_refused(golden: Path) -> None:
    module = modules_of(golden / "autoawq-gemm-g128")["model.layers.0.mlp.up_proj"]
    with pytest.raises(ValueError, match="stored together"):
        stack_outputs([module], [(4, 12)])

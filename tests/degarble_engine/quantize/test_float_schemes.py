"""FP4 and static FP8 in every layout that holds them: values bit for bit, names and config of the tools' own files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from degarble.errors import UsageError
from degarble.formats import e2m1
from degarble.report.interface import Status
from degarble_engine.quantize.fp4_grid import Fp4Grid, fp4_grid, nearest
from degarble_engine.quantize.quantizing import quantize
from degarble_engine.quantize.recipe import Recipe
from degarble_engine.quantize.scheme import parse_scheme
from tests.conftest import unpacked_golden
from tests.degarble_engine.quantize.tiny_jobs import calibration_file, source_of

CASES = [
    ("NVFP4", "compressed-tensors", "llm-compressor-nvfp4"),
    ("MXFP4", "compressed-tensors", "llm-compressor-mxfp4"),
    ("NVFP4", "modelopt", "modelopt-nvfp4"),
    ("FP8_STATIC", "modelopt", "modelopt-fp8"),
]
TOOLS_OWN = {"version", "sparsity_config", "transform_config", "global_compression_ratio", "producer"}


@cache
def made(scheme: str, export: str, method: str = "rtn") -> tuple[Path, Status]:
    import tempfile

    out = Path(tempfile.mkdtemp(prefix="degarble-fp4.")) / "out"
    recipe = Recipe(scheme=scheme, method=method, export=export, calibration=calibration_file())
    source = unpacked_golden() / "base-bf16" if method == "rtn" else source_of("llama")
    return out, quantize(str(source), str(out), recipe).status


def layout(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> dtype and number of axes; sizes are those of the model, which is the same."""
    with safe_open(folder / "model.safetensors", "np") as file:
        names = [name for name in file.keys() if "layers." in name]  # noqa: SIM118
        return {name: (file.get_slice(name).get_dtype(), tuple(file.get_slice(name).get_shape())) for name in names}


def plain(config: object) -> object:
    """Without what only says which tool wrote it, or its defaults."""
    if isinstance(config, dict):
        kept = {key: plain(value) for key, value in config.items() if key not in TOOLS_OWN}
        return {key: value for key, value in kept.items() if value not in (None, {}) and not key.startswith("observer")}
    return config


@pytest.mark.parametrize(("scheme", "export", "golden"), CASES)
def test_the_layout_is_that_of_the_tool(scheme: str, export: str, golden: str) -> None:
    out, status = made(scheme, export)
    assert status is Status.OK
    theirs = unpacked_golden() / golden
    assert layout(out) == layout(theirs)
    own, known = (json.loads((folder / "config.json").read_text())["quantization_config"] for folder in (out, theirs))
    ignored = [config.pop("ignore") for config in (own, known)]
    assert set(ignored[0]) <= set(ignored[1])
    assert plain(own) == plain(known)


@pytest.mark.parametrize("scheme", ["NVFP4", "NVFP4A16", "MXFP4", "MXFP4A16", "FP8_STATIC"])
@pytest.mark.parametrize("method", ["rtn", "gptq"])
def test_values_are_read_back(scheme: str, method: str) -> None:
    """`quantize` itself proves the values; gptq must not be further from the reference than rounding is."""
    assert made(scheme, "compressed-tensors", method)[1] is Status.OK


def test_codes_are_those_of_the_format() -> None:
    values = torch.linspace(-8, 8, 4001)
    wanted = e2m1.VALUES[e2m1.encode(values.numpy())]
    off = nearest(values).numpy() != wanted
    assert set(np.abs(values.numpy()[off]).round(4).tolist()) <= {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0}  # only ties


@pytest.mark.parametrize("name", ["NVFP4", "MXFP4"])
def test_groups_are_no_worse_than_those_of_the_format(name: str) -> None:
    from degarble.formats import mxfp4, nvfp4

    weight = torch.randn(16, 128, generator=torch.Generator().manual_seed(5)) ** 3
    weight[3, :32] = 0
    grid = fp4_grid(weight, parse_scheme(name))
    assert isinstance(grid, Fp4Grid)
    found = grid.round_all(weight)
    assert torch.equal(grid.decode(grid.encode(found)), found)
    if name == "NVFP4":
        codes, scales, divisor = nvfp4.quantize(weight.numpy())
        theirs = e2m1.VALUES[codes] * np.repeat(scales / divisor, 16, 1)
    else:
        codes, exponents = mxfp4.quantize(weight.numpy())
        theirs = e2m1.VALUES[codes] * np.repeat(np.exp2(exponents.astype(np.float32) - 127), 32, 1)
    errors = [((one - weight) ** 4).sum() for one in (found, torch.from_numpy(theirs.astype(np.float32)))]
    assert errors[0] <= errors[1]


def test_what_is_refused() -> None:
    with pytest.raises(UsageError, match="groups of 16"):
        parse_scheme("NVFP4", 32)
    with pytest.raises(UsageError, match="modelopt cannot hold W4A16"):
        Recipe(scheme="W4A16", export="modelopt").quant_scheme()
    with pytest.raises(UsageError, match="gptq cannot hold NVFP4"):
        Recipe(scheme="NVFP4", export="gptq").quant_scheme()

"""Every export holds the same values as the default one, is checked clean, and says so where it cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.errors import UsageError
from degarble.evidence import Evidence, Settings
from degarble.profile.code_groups import values_of
from degarble.report.interface import Status
from degarble.target import open_target
from degarble_engine.quantize.quantizing import quantize
from degarble_engine.quantize.recipe import Recipe
from tests.degarble_engine.quantize.tiny_jobs import source_of


def values(folder: Path) -> dict[str, np.ndarray]:
    modules = Evidence(open_target(folder), Settings()).get("modules")
    return {one.name: values_of(one) for one in modules.values() if one.form.is_quantized}


def halved(tmp_path: Path, family: str) -> Path:
    """The tiny model in fp16, where scales of fp16 are what a model of fp32 would not choose."""
    work = Workspace(open_target(source_of(family)))
    for name, module in Evidence(open_target(source_of(family)), Settings()).get("modules").items():
        for suffix, info in module.parts.items():
            if info.dtype == "F32":
                work.set(f"{name}.{suffix}", module.reader.read(info).astype(np.float16))
    work.json("config.json")["dtype"] = "float16"
    work.save(tmp_path / "half")
    return tmp_path / "half"


@pytest.mark.parametrize(
    ("export", "scheme", "family"),
    [
        ("gptq", "W4A16_ASYM", "llama"),
        pytest.param("gptq", "W4A16", "qwen3-moe", marks=pytest.mark.slow),
        pytest.param("gptq", "W8A16", "llama", marks=pytest.mark.slow),
        ("awq", "W4A16_ASYM", "qwen3-moe"),
        ("fp8", "FP8_BLOCK", "qwen3-moe"),
    ],
)
def test_the_values_of_the_default_layout(export: str, scheme: str, family: str, tmp_path: Path) -> None:
    model = halved(tmp_path, family)
    size = None if scheme.startswith("FP8") else 32
    for name in (export, "compressed-tensors"):
        report = quantize(
            str(model), str(tmp_path / name), Recipe(scheme=scheme, method="rtn", group_size=size, export=name)
        )
        assert report.status is Status.OK, [finding.message for finding in report.findings]
    found, wanted = values(tmp_path / export), values(tmp_path / "compressed-tensors")
    assert found.keys() == wanted.keys() and found
    for name in found:
        if export == "awq":
            assert np.array_equal(found[name], wanted[name]), name
        else:  # zero points from 1, scales of fp32: nearly the same choice
            assert np.abs(found[name] - wanted[name]).mean() < 0.02 * np.abs(wanted[name]).mean(), name


@pytest.mark.parametrize(
    ("export", "scheme", "message"),
    [
        ("gptq", "W8A8", "integer weights only"),
        ("gptq", "FP8", "integer weights only"),
        ("gptq", "W5A16", "2 or 3 or 4 or 8 bits, not 5"),
        ("awq", "W8A16", "4 bits, not 8"),
        ("fp8", "W4A16", "FP8_BLOCK"),
        ("fp8", "FP8", "FP8_BLOCK"),
    ],
)
def test_schemes_that_a_layout_cannot_hold(export: str, scheme: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"--export {export} cannot hold {scheme}: .*{message}"):
        Recipe(export=export, scheme=scheme).quant_scheme()


@pytest.mark.parametrize(("export", "shape"), [("gptq", (72, 64)), ("awq", (36, 64))])
def test_shapes_that_fill_no_words(export: str, shape: tuple[int, int]) -> None:
    recipe = Recipe(export=export, scheme="W3A16" if export == "gptq" else "W4A16", group_size=32)
    assert "no whole words" in str(recipe.layout().refuses_shape(recipe.quant_scheme(), *shape))
    assert recipe.layout().refuses_shape(recipe.quant_scheme(), 64, 64) is None

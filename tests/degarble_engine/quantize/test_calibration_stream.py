"""What passes over a layer leave out must be what they would have computed again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from degarble_engine.quantize import layer_rounding
from degarble_engine.quantize.calibration_stream import settled_blocks
from degarble_engine.quantize.quantizing import quantize
from tests.degarble_engine.quantize.tiny_jobs import made, recipe_of, source_of

SITES = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj", "lone")


def test_a_block_is_settled_with_its_last_linear() -> None:
    assert settled_blocks(SITES, ["self_attn.q_proj"]) == []
    assert settled_blocks(SITES, ["self_attn.q_proj", "self_attn.o_proj", "lone"]) == ["self_attn"]
    assert settled_blocks(SITES, SITES) == ["self_attn", "mlp"]


@pytest.mark.parametrize(
    "family",
    ["llama", *(pytest.param(one, marks=pytest.mark.slow) for one in ("qwen2", "qwen3-moe", "gemma2", "deepseek-v3"))],
)
def test_remembered_attention_gives_the_same_bytes(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered: list[str] = []

    def nothing(sites: object, settled: object, find: Callable[..., list[str]] = settled_blocks) -> list[str]:
        remembered.extend(find(sites, settled))
        return []

    wanted = made(family, "W4A16_ASYM", "gptq", 16)[0]
    monkeypatch.setattr(layer_rounding, "settled_blocks", nothing)
    quantize(str(source_of(family)), str(tmp_path / "out"), recipe_of("W4A16_ASYM", "gptq", 16))
    assert "self_attn" in remembered
    files = sorted(file.name for file in wanted.glob("*.safetensors"))
    assert files and all((tmp_path / "out" / name).read_bytes() == (wanted / name).read_bytes() for name in files)

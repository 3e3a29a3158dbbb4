"""A gather moves the bytes it says, for every layout with rows of its own, and refuses what it cannot measure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from degarble.cli.app import run
from degarble.errors import LayoutMismatch
from degarble.kvcache.gather import MAX_HEADS, gather
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import CATALOGUE, find_layout

SIZE = Geometry(num_blocks=12, block_size=4, num_kv_heads=3, head_dim=8, latent=16, num_layers=2)
HEALTHY = Path(__file__).parents[1] / "cases" / "kv" / "healthy.json"


@pytest.mark.parametrize("name", [layout.name for layout in CATALOGUE])
def test_every_layout(name: str) -> None:
    layout = find_layout(name)
    if not {"num_blocks", "block_size"} <= set(layout.axes) or not {"head_dim", "latent"} & set(layout.axes):
        with pytest.raises(LayoutMismatch, match="no gather of axes"):
            gather(layout, SIZE, 2, 10)
        return
    lanes, heads = (16, 1) if "latent" in layout.atoms else (8, 3)
    found = gather(layout, SIZE, 2, 10)
    assert found.useful_bytes == 10 * lanes * heads * 2 and found.gigabytes_a_second > 0 and heads <= MAX_HEADS


def test_limits() -> None:
    layout = find_layout("NHD")
    for tokens, itemsize, said in ((49, 2, "need 13 blocks"), (10, 3, "no machine number has 3 bytes")):
        with pytest.raises(LayoutMismatch, match=said):
            gather(layout, SIZE, itemsize, tokens)
    huge = Geometry(num_blocks=1 << 40, block_size=16, num_kv_heads=8, head_dim=128)
    assert gather(layout, huge, 2, 100).useful_bytes == 8 * 100 * 128 * 2


def test_lint_says_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kv", "lint", str(HEALTHY), "--measure"]) == 0
    told = capsys.readouterr().err
    assert (
        "access[0]: NHD, blocks of 16, group of 4, 1000 tokens: 128000 of 128000 fetched bytes are used (100.0%)"
        in told
    )
    assert told.count("GB/s of useful bytes") == 2
    document = json.loads(HEALTHY.read_text())
    document["access"][0] |= {"num_tokens": 1 << 30}
    document["access"][1]["g"] = 9
    path = tmp_path / "kv.json"
    path.write_text(json.dumps(document))
    run(["kv", "lint", str(path), "--measure"])
    told = capsys.readouterr().err
    assert "access[0]: not measured: 1073741824 tokens need" in told and "access[1]: not measured: group 9" in told

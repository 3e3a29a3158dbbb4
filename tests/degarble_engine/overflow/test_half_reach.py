"""What the weights alone tell, against the walk; and the repair that it asks for, against the function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from degarble.api import check
from degarble.checkpoint.workspace import Workspace
from degarble.errors import EvidenceMissing
from degarble.evidence import Evidence, Settings
from degarble.evidence.half_reach import HalfReach, ReachRow
from degarble.repairing.fix import fix
from degarble.target import open_target
from degarble_engine.numerics.tokens import batch_of
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.overflow.range_walk import range_walk
from tests.degarble_engine.tiny_models import folder, tiny_batch, wanted_logits

FP16 = Settings(dtype="float16")


def reach_of(path: Path) -> HalfReach:
    found: HalfReach = Evidence(open_target(path), FP16).get("half_reach")
    return found


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_the_estimate_is_the_first_token_of_the_walk(family: str) -> None:
    """The same rows, each a text of one token: the walk's largest numbers, place by place, within rounding."""
    model = WalkedModel.open(str(folder(family)))
    ids = np.linspace(0, model.vocab_size - 1, 16).astype(int)
    ids[0] = 1
    walk = range_walk(model, [batch_of([[int(one)] for one in ids], "rows")], [])
    peaks = walk.runs[0][0].ledger.peaks
    for row in reach_of(folder(family)).rows:
        module = (row.location.module or "").removeprefix(f"model.layers.{row.layer}.")
        place = {"gate x up": "input"}.get(row.place, row.place)
        assert row.estimate == pytest.approx(peaks[row.layer, module, place].value, rel=1e-4), (row.place, module)
        assert row.bound is None or row.estimate <= row.bound


def test_other_families_are_not_guessed() -> None:
    with pytest.raises(EvidenceMissing, match="gemma2"):
        reach_of(folder("gemma2"))
    with pytest.raises(EvidenceMissing, match="--dtype float16"):
        Evidence(open_target(folder("llama")), Settings()).get("half_reach")


def grown(tmp_path: Path, factors: dict[str, float]) -> Path:
    """A copy whose weights are multiplied by the end of their module's name."""
    source = open_target(folder("llama"))
    work = Workspace(source)
    for name, module in Evidence(source, Settings()).get("modules").by_canonical.items():
        factor = next((value for end, value in factors.items() if name.endswith(end)), None)
        if factor is not None:
            work.set(module.payload.name, module.dequantize() * np.float32(factor))
    work.save(tmp_path / "grown")
    return tmp_path / "grown"


@pytest.mark.parametrize(
    ("factors", "place"),
    [
        ({"mlp.down_proj": 2.0**19}, "residual add"),
        ({"layers.2.mlp.up_proj": 2.0**17, "layers.2.mlp.down_proj": 2.0**-17}, "gate x up"),
    ],
)
def test_the_rescale_keeps_the_function(factors: dict[str, float], place: str, tmp_path: Path) -> None:
    sick = grown(tmp_path, factors)
    assert largest(sick, place).margin < 2
    outcome = fix(str(sick), str(tmp_path / "fixed"), unsafe=True, settings=FP16, select_rules=["NUM301"])
    assert [step.repair for step in outcome.plan.steps] == ["rescale-by-powers-of-two"]
    assert not [one for one in check(str(tmp_path / "fixed"), dtype="float16").findings if one.measured.get("place")]
    assert 4 <= largest(tmp_path / "fixed", place).margin < 8
    before, after = (wanted_logits(path, tiny_batch()) for path in (sick, tmp_path / "fixed"))
    assert torch.equal(before, after)


def largest(path: Path, place: str) -> ReachRow:
    return reach_of(path).largest(place)

"""The numbers of shared research on the real model, reproduced: a bound rests on them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from degarble.evidence import Evidence, Settings
from degarble.executor import ThreadExecutor
from degarble.profile.blocks import EXHAUSTIVE_NEURONS, blocks, profile_blocks
from degarble.profile.layer import NUM_NEURONS, JointProfile
from degarble.target import open_target
from tests.real.conftest import model_path

pytestmark = pytest.mark.real


@cache
def joint_profiles(name: str, neurons: int = NUM_NEURONS) -> tuple[JointProfile, ...]:
    evidence = Evidence(open_target(model_path(name)), Settings())
    modules = evidence.get("modules")
    chosen = blocks(modules.values(), evidence.get("model_config").values)
    return tuple(profile_blocks(chosen, ThreadExecutor(), neurons=neurons))


def stored(found: tuple[JointProfile, ...], left: str, right: str) -> list[float]:
    return [pair.stored for one in found if (pair := one.pair(left, right)) is not None]


@pytest.mark.parametrize(
    ("left", "right", "median", "least"),
    [("up", "down", 57, 2.6), ("gate", "down", 34, 1.17), ("q", "k", 16, 8.2), ("v", "o", 64, 1.08)],
)
def test_alignment_of_all_neurons(left: str, right: str, median: float, least: float) -> None:
    values = stored(joint_profiles("bf16", 1 << 20), left, right)
    assert len(values) == 30
    assert np.median(values) == pytest.approx(median, rel=0.04)
    assert min(values) == pytest.approx(least, rel=0.02)


def test_signs_of_all_neurons() -> None:
    found = joint_profiles("bf16", 1 << 20)
    assert min(one.key_value for one in found if one.key_value is not None) == pytest.approx(2.05, abs=0.03)
    assert min(one.gate_up for one in found if one.gate_up is not None) == pytest.approx(8.5, abs=0.1)
    assert min(one.rotary for one in found if one.rotary is not None) > 2.4


@pytest.mark.parametrize("name", ["bf16", "gptq", "awq", "compressed-tensors", "fp8"])
@pytest.mark.parametrize("neurons", [NUM_NEURONS, EXHAUSTIVE_NEURONS])
def test_a_healthy_sample_accuses_nobody(name: str, neurons: int) -> None:
    found = joint_profiles(name, neurons)
    assert len(found) == 60
    for one in found:
        assert all(pair.best[2] < 6 for pair in one.pairs), one.modules
        assert one.key_value is None or one.key_value > -0.5
        assert one.gate_up is None or one.gate_up > -3
        assert one.rotary is None or one.rotary > -1.5


def test_gguf_rows_are_in_rotary_order() -> None:
    """llama.cpp permutes rows of q and k on purpose: the statistic sees it, the rule must know the format."""
    values = [one.rotary for one in joint_profiles("gguf") if one.rotary is not None]
    assert sum(values) / len(values) ** 0.5 < -20

"""Parallel degrees: the published cases, and arithmetic that must hold for every layer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.engines.parallel import (
    DEGREES,
    AttentionHeads,
    ParallelLayer,
    Role,
    expert_parallel_degrees,
    max_tensor_parallel,
    role_of,
    tensor_parallel_obstacles,
)


def _down(in_features: int, group_size: int | None = None, block: tuple[int, int] | None = None) -> ParallelLayer:
    return ParallelLayer(
        name="mlp.down_proj",
        out_features=8192,
        in_features=in_features,
        role=Role.ROW,
        group_size=group_size,
        block_shape=block,
    )


def test_qwen2_72b_groups_of_128() -> None:
    """vllm-project/vllm#21695, and the padding that helps."""
    obstacles = tensor_parallel_obstacles([_down(29568, 128)])
    assert not obstacles[1]
    assert all(obstacles[tp] for tp in (2, 4, 8))
    assert obstacles[2] == ("mlp.down_proj: 29568 in_features over 2 ranks give 14784 each, not a multiple of 128",)
    assert max_tensor_parallel([_down(29568, 128)]) == 1
    assert max_tensor_parallel([_down(29696, 128)]) == 8, "padded before quantising"
    assert max_tensor_parallel([_down(29568)]) == 64, "without groups only the division counts"
    assert max_tensor_parallel([_down(29568, -1)]) == 64


def test_fp8_blocks_of_a_narrow_expert() -> None:
    """192 columns a rank are no multiple of a block of 128 (vllm-project/vllm#54178)."""
    gate_up = ParallelLayer(
        name="experts.gate_up_proj",
        out_features=3072,
        in_features=4096,
        role=Role.COLUMN,
        block_shape=(128, 128),
        num_parts=2,
    )
    assert gate_up.obstacles(4) == []
    assert gate_up.obstacles(8) == [
        "experts.gate_up_proj: 1536 out_features over 8 ranks give 192 each, not a multiple of 128"
    ]
    assert _down(1536, block=(128, 128)).obstacles(8)
    assert max_tensor_parallel([gate_up, _down(1536, block=(128, 128))]) == 4


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "largest"),
    [(64, 8, 64), (32, 8, 32), (28, 4, 4), (9, 3, 1), (40, 40, 8), (16, 1, 16)],
)
def test_heads(num_heads: int, num_kv_heads: int, largest: int) -> None:
    """The largest degree that head counts alone allow."""
    assert max_tensor_parallel([], AttentionHeads(num_heads=num_heads, num_kv_heads=num_kv_heads)) == largest


def test_few_kv_heads_are_repeated_not_cut() -> None:
    """More ranks than KV heads do not cut a head in two."""
    key = ParallelLayer(name="k_proj", out_features=512, in_features=4096, role=Role.KEY_VALUE, block_shape=(128, 128))
    assert key.obstacles(8, num_kv_heads=4) == [], "four shards of 128, each held twice"
    assert key.obstacles(8) == ["k_proj: 512 out_features over 8 ranks give 64 each, not a multiple of 128"]


def test_roles() -> None:
    """Names engines know, and one they never split."""
    assert role_of("model.layers.0.self_attn.q_proj") is Role.COLUMN
    assert role_of("model.layers.0.self_attn.v_proj") is Role.KEY_VALUE
    assert role_of("model.layers.0.mlp.experts.7.w2") is Role.ROW
    assert role_of("model.layers.0.mlp.gate") is Role.WHOLE


def test_experts() -> None:
    """Expert counts of DeepSeek-V3, GLM-4.5, Qwen1.5-MoE, and none."""
    assert expert_parallel_degrees(256) == DEGREES
    assert expert_parallel_degrees(160) == (1, 2, 4, 8, 16, 32)
    assert expert_parallel_degrees(60) == (1, 2, 4)
    assert expert_parallel_degrees(0) == ()


SIZES = st.integers(1, 4096)


@given(SIZES, SIZES, st.sampled_from(list(Role)), st.sampled_from([None, -1, 32, 64, 128]))
def test_one_rank_always_works(out_features: int, in_features: int, role: Role, group_size: int | None) -> None:
    """Without a cut there is nothing to break."""
    layer = ParallelLayer(
        name="x", out_features=out_features, in_features=in_features, role=role, group_size=group_size
    )
    assert layer.obstacles(1) == []
    assert max_tensor_parallel([layer]) in DEGREES


@given(st.integers(1, 64), st.sampled_from([32, 64, 128]), st.sampled_from(DEGREES))
def test_whole_groups_for_every_rank_work(groups: int, group_size: int, tp: int) -> None:
    """Groups times ranks is always divisible."""
    assert _down(groups * group_size * tp, group_size).obstacles(tp) == []


@given(SIZES, st.sampled_from([32, 64, 128]))
def test_a_degree_implies_its_divisors(in_features: int, group_size: int) -> None:
    """If four ranks fit, two do."""
    obstacles = tensor_parallel_obstacles([_down(in_features, group_size)])
    if not obstacles[4]:
        assert not obstacles[2]

"""Block boundaries after control tokens: where they are, what they cost, where an engine's cutting breaks them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from degarble.kvcache.isolation import NO_ISOLATION, Isolation, isolation_cost, shared_blocks

POLICY = Isolation(control_tokens={0: "bos", 1: "role", 2: "eos"}, classes=frozenset({"bos", "role"}))


def test_the_policy_names_ids_by_class() -> None:
    assert POLICY.ending_ids == {0, 1} and POLICY.is_active and not NO_ISOLATION.is_active


def test_cost_by_hand() -> None:
    """bos | 5 tokens | role | 9 tokens in blocks of 8: 1 + 6 (with role), 8, 1 rows in 4 blocks instead of 2."""
    ids = [0, *[9] * 5, 1, *[9] * 9]
    cost = isolation_cost(POLICY, [ids, ids], 8)
    assert (cost.num_blocks_plain, cost.num_blocks_isolated, cost.empty_rows) == (4, 8, 32)
    assert cost.share == 1.0
    assert isolation_cost(POLICY, [], 8).share == 0.0


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 9))
def test_edges_keep_the_policy(ids: list[int], block_size: int) -> None:
    edges = POLICY.edges(ids, block_size)
    assert edges[0] == 0 and all(0 < b - a <= block_size for a, b in pairwise(edges))
    assert not shared_blocks(POLICY, ids, edges)
    assert POLICY.edges(ids[: len(ids) // 2], block_size) == [at for at in edges if at <= len(ids) // 2], "of ids alone"
    cost = isolation_cost(POLICY, [ids], block_size)
    assert cost.num_blocks_isolated >= cost.num_blocks_plain
    assert cost.empty_rows == cost.num_blocks_isolated * block_size - len(ids)


def test_plain_cutting_breaks_it() -> None:
    found = shared_blocks(POLICY, [0, 5, 5, 1, 7, 7, 2, 7, 1], [0, 4, 8])
    assert [(one.column, one.position, one.token_id) for one in found] == [(0, 0, 0)]

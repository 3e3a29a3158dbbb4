"""The plain twin, and rows that stand for their whole context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.errors import BlockMisuse
from degarble.kvcache.namespace import ImageSpan, Namespace
from degarble.kvcache.prefix_cache import block_key
from degarble.kvcache.reference import ReferenceCache, row_values

IDS = st.lists(st.integers(0, 50), min_size=1, max_size=30)


@given(IDS, IDS)
def test_rows_are_equal_exactly_as_far_as_contexts_are(one: list[int], other: list[int]) -> None:
    a, b = row_values(Namespace(), one), row_values(Namespace(), other)
    same = [x == y for x, y in zip(one, other, strict=False)]
    common = same.index(False) if False in same else len(same)
    assert a[:common] == b[:common] and all(x != y for x, y in zip(a[common:], b[common:], strict=False))
    assert row_values(Namespace(), one, a[: len(one) // 2]) == a


def test_rows_know_their_namespace_and_images() -> None:
    plain = row_values(Namespace(), [1, 2, 3])
    assert not set(plain) & set(row_values(Namespace(salt="x"), [1, 2, 3]))
    image = row_values(Namespace(images=(ImageSpan(start=1, length=2, digest="cat"),)), [1, 2, 3])
    assert image[0] == plain[0] and image[1] != plain[1]


def test_the_twin() -> None:
    twin = ReferenceCache()
    twin.open("a", [1, 2, 3], num_cached=1)
    assert twin.schedule("a", 2, [9, 8]) == (1, 5)
    twin.complete("a", [9, 7])
    assert twin.token_ids["a"] == [1, 2, 3, 9, 7] and len(twin.rows["a"]) == 4
    twin.fork("a", "b")
    twin.schedule("b", 1, [5])
    twin.preempt("b")
    assert twin.token_ids["b"] == twin.token_ids["a"]
    twin.finish("a")
    assert list(twin.rows) == ["b"]
    for ids, cached in (([], 0), ([1], 1)):
        with pytest.raises(BlockMisuse):
            twin.open("c", ids, num_cached=cached)


@given(st.binary(max_size=20), IDS, st.binary(max_size=9), st.binary(max_size=20), IDS, st.binary(max_size=9))
def test_keys_differ_where_anything_does(p: bytes, i: list[int], e: bytes, q: bytes, j: list[int], f: bytes) -> None:
    assert (block_key(p, i, e) == block_key(q, j, f)) == ((p, i, e) == (q, j, f))


def test_a_polynomial_hash_would_collide() -> None:
    """NVIDIA/Megatron-LM#4158: [5, 40] and [6, 9] are 195 to a hash in base 31."""
    assert 5 * 31 + 40 == 6 * 31 + 9 == 195
    assert block_key(b"", [5, 40], b"") != block_key(b"", [6, 9], b"")

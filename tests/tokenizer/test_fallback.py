"""Decoding what is no text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.fallback import FallbackPolicy, UndecodableIds, decode_with_fallback

TABLE = ByteTable(pieces=[*(bytes([byte]) for byte in range(256)), None, b" hidden", "\ufffd".encode()], strip=1)
BROKEN = [*b"a\xe4\xbd", 256, *b"\xff!"]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("exact", "a\udce4\udcbd\udcff!"),
        ("replace", "a\ufffd\ufffd\ufffd!"),
        ("hex", "a<0xE4><0xBD><id 256><0xFF>!"),
        ("drop", "a!"),
    ],
)
def test_policies(policy: str, text: str) -> None:
    result = decode_with_fallback(TABLE, BROKEN, policy)
    assert (result.text, result.num_invalid, result.num_without_text) == (text, 2, 1)
    assert not result.is_clean


@pytest.mark.parametrize(
    ("ids", "position"),
    [([*b"ab\xe4\xbdx"], 4), ([*b"a\xff"], 1), ([97, 256], 1), ([97, 300], 1), ([-5], 0), ([258, *b"\xe4\xbd"], 3)],
)
def test_raise_says_where(ids: list[int], position: int) -> None:
    with pytest.raises(UndecodableIds) as caught:
        decode_with_fallback(TABLE, ids, "raise")
    assert caught.value.position == position


def test_clean_text_is_the_same_under_every_policy() -> None:
    ids = [*" é🌶 ".encode(), 258]
    for policy in FallbackPolicy:
        result = decode_with_fallback(TABLE, ids, policy)
        assert result.text == "é🌶 \ufffd"
        assert result.is_clean


def test_hidden_ids_are_left_out_first() -> None:
    ids = [0xC3, 257, 0xA9]
    assert decode_with_fallback(TABLE, ids, hidden=frozenset({257})).text == "é"
    with pytest.raises(UndecodableIds) as caught:
        decode_with_fallback(TABLE, [0xC3, 257, 0xFF], "raise", hidden=frozenset({257}))
    assert caught.value.position == 2


@given(st.lists(st.integers(-3, 300), max_size=30), st.sampled_from([p for p in FallbackPolicy if p != "raise"]))
def test_no_ids_can_crash_it(ids: list[int], policy: FallbackPolicy) -> None:
    result = decode_with_fallback(TABLE, ids, policy)
    if policy is FallbackPolicy.EXACT:
        kept = b"".join(TABLE.bytes_of(at) or b"" for at in ids)
        assert result.text.encode("utf-8", "surrogateescape") in (kept, kept[1:])
    else:
        result.text.encode()

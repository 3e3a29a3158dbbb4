"""Merges in both spellings, and what is none."""

from __future__ import annotations

import json

import pytest

from degarble.tokenizer.merges import Merges

PAIRS = [("a", "b"), ("ab", "c"), ("Ġ", "a")]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("spelling", ["text", "pairs", "listed"])
def test_spellings_are_equal(spelling: str, indent: int | None) -> None:
    if spelling == "listed":
        merges = Merges(listed=[" ".join(pair) for pair in PAIRS])
    else:
        rows = [" ".join(pair) for pair in PAIRS] if spelling == "text" else [list(pair) for pair in PAIRS]
        merges = Merges(json.dumps(rows, indent=indent).encode())
    assert merges.problem is None and merges.pairs == PAIRS
    assert merges.products == ["ab", "abc", "Ġa"]
    assert merges.parts == {"a", "b", "ab", "c", "Ġ"}
    assert [merges.rank(*pair) for pair in [*PAIRS, ("b", "a")]] == [0, 1, 2, None]


def test_a_piece_may_be_a_space() -> None:
    merges = Merges(b'["  a", "b c"]')
    assert merges.pairs == [(" ", "a"), ("b", "c")] and merges.products == [" a", "bc"]
    assert merges.parts == {" ", "a", "b", "c"}


@pytest.mark.parametrize(
    "raw", [b"null", b"{}", b"[1]", b'["a b", 1]', b'[["a"]]', b'[["a", 1]]', b'[["a","b","c"]]', b'"a b"', b"[" * 900]
)
def test_other_values_are_a_problem(raw: bytes) -> None:
    merges = Merges(raw)
    assert merges.problem and not merges.pairs and not merges.products and not merges.parts
    assert merges.rank("a", "b") is None


def test_a_list_of_other_values() -> None:
    assert Merges(listed=["a b", 1]).problem
    assert Merges().problem is None and Merges().pairs == []


def test_text_without_a_space_has_one_half() -> None:
    assert Merges(b'["ab", ""]').pairs == [("ab", ""), ("", "")]


def test_digest_tells_merges_apart() -> None:
    one, other = Merges(listed=["a b", "c d"]), Merges(listed=["c d", "a b"])
    assert one.digest == Merges(listed=["a b", "c d"]).digest != other.digest

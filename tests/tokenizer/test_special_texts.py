"""Leftmost longest, from one expression for many tokens, against looking at each place and each token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from degarble.tokenizer.special_texts import MAX_DEPTH, SpecialTextFinder

words = st.text("ab<|.*", min_size=1, max_size=5)


def found_slowly(text: str, tokens: set[str]) -> list[tuple[int, str]]:
    at, found = 0, []
    while at < len(text):
        token = max((token for token in tokens if text.startswith(token, at)), key=len, default="")
        if token:
            found.append((at, token))
        at += len(token) or 1
    return found


@given(tokens=st.sets(words, min_size=1, max_size=12), text=st.text("ab<|.*", max_size=40), before=st.integers(0, 40))
def test_finder(tokens: set[str], text: str, before: int) -> None:
    finder = SpecialTextFinder(tokens)
    expected = found_slowly(text, tokens)
    assert finder.is_in(text) == bool(expected)
    assert finder.find(text) == (expected[0][0] if expected else -1)
    assert list(finder.find_all(text)) == [(at, at + len(token)) for at, token in expected]
    expected = [(at, token) for at, token in expected if at < before]
    pieces, ends = finder.split(text, before)
    assert list(zip(ends[:-1:2].tolist(), pieces[1::2], strict=True)) == expected
    assert text.startswith("".join(pieces))
    beginnings = {token[:size] for token in tokens for size in range(1, len(token))}
    assert finder.num_held(text) == max((len(some) for some in beginnings if text.endswith(some)), default=0)


def test_tokens_that_are_beginnings_of_each_other() -> None:
    """More of them than Python's compiler of expressions could nest."""
    finder = SpecialTextFinder({"a" * length for length in range(1, 10 * MAX_DEPTH)})
    pieces, _ = finder.split("b" + "a" * 450, 451)
    assert pieces == ["b", "a" * 399, "", "a" * 51, ""]


def test_no_tokens() -> None:
    finder = SpecialTextFinder(())
    assert not finder.is_in("text") and finder.num_held("text") == 0


def test_tokens_that_go_on_alike_share_an_expression() -> None:
    tokens = [f"<unused{number}>" for number in range(6242)]
    finder = SpecialTextFinder(tokens)
    assert len(finder._pattern.pattern) < 1000
    assert [*map(len, finder.split("".join(tokens), 10**6)[0][1::2])] == [*map(len, tokens)]
    assert finder.find("<unused6242> <unused01> <unused>") == -1

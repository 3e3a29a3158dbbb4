"""Stop strings: what is shown and what is held, in every cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.errors import UsageError
from degarble.tokenizer.stop_strings import StopStrings


def shown_by_definition(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Letter by letter: stop when the first stop string is complete, at the earliest place where it begins."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], text[min(starts) : end]
    return text, None


@given(
    st.text("ab<|\U0001f336", max_size=24),
    st.lists(st.text("ab<|\U0001f336", min_size=1, max_size=4), max_size=4),
    st.lists(st.integers(0, 24), max_size=8),
)
def test_any_cut_gives_the_defined_text(text: str, stops: list[str], cuts: list[int]) -> None:
    expected, matched = shown_by_definition(text, stops)
    stream = StopStrings(stops).stream()
    shown = ""
    for start, end in itertools.pairwise([0, *sorted(cuts), len(text)]):
        shown += stream.push(text[start:end])
        assert expected.startswith(shown)
        seen = text[:end]
        if matched is None or len(seen) < len(expected) + len(matched):
            held = seen[len(shown) :] if not matched or len(seen) <= len(expected) + len(matched) else ""
            assert not held or any(stop.startswith(held) and stop != held for stop in stops)
    assert (shown + stream.finish(), stream.matched) == (expected, matched)


def test_the_example_of_the_reports() -> None:
    stream = StopStrings(["own fox"]).stream()
    assert [stream.push(delta) for delta in ("The quick br", "own", " fox", " jumps")] == ["The quick br", "", "", ""]
    assert stream.matched == "own fox"
    assert stream.finish() == ""


def test_what_was_held_comes_back_when_it_was_no_stop() -> None:
    stream = StopStrings(["<|end|>", "<stop>"]).stream()
    assert stream.push("a <|en") == "a "
    assert stream.push("try") == "<|entry"
    assert stream.push(" <st") == " "
    assert stream.finish() == "<st"


def test_the_longest_of_those_that_end_together() -> None:
    stream = StopStrings(["bc", "abc"]).stream()
    assert stream.push("xabc") == "x"
    assert stream.matched == "abc"


def test_without_stop_strings_nothing_is_held() -> None:
    assert StopStrings([]).stream().push("text") == "text"


def test_an_empty_stop_string() -> None:
    with pytest.raises(UsageError):
        StopStrings(["a", ""])

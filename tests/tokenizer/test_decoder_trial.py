"""Trials have the text that they promise, by our own tables."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.tokenizer.decoder_pipeline import read_pipeline
from degarble.tokenizer.decoder_trial import Trial, first_failure, opening_spaces_dropped, trials
from degarble.tokenizer.spelling import read_spelling
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, unigram, wordpiece
from tests.tokenizer.test_spelling import spelled


@pytest.mark.parametrize("document", [byte_level(), byte_fallback(), unigram(), wordpiece(cleanup=False)])
def test_parts_are_what_the_table_says(document: Any) -> None:
    pipeline = read_pipeline(document["decoder"], "tokenizer.json")
    spelling = spelled(document)
    listed = trials(spelling, sorted(spelling.pieces))
    assert listed
    for trial in listed:
        assert [pipeline.piece(token, first=at == 0) for at, token in enumerate(trial.tokens)] == list(trial.parts)


def test_beginnings_inside_a_character_do_not_count() -> None:
    trial = Trial(tokens=("a", "b"), parts=(b"\xe5\xae", b"\xa2"))
    assert first_failure(lambda tokens: "客" if len(tokens) == 2 else "?", [trial]) is None


def test_shortest_beginning_is_told() -> None:
    trial = Trial(tokens=("a", "b", "c"), parts=(b"a", b"b", b"c"))
    failure = first_failure(lambda tokens: "".join(tokens)[:1], [trial])
    assert failure is not None and failure.tokens == ("a", "b") and (failure.expected, failure.found) == ("ab", "a")


@pytest.mark.parametrize("dropped", [0, 1, 4])
def test_opening_spaces(dropped: Any) -> None:
    assert opening_spaces_dropped(lambda tokens: "".join(tokens)[dropped:], " ") == dropped


def test_empty_vocabulary() -> None:
    assert trials(read_spelling([], []), [])

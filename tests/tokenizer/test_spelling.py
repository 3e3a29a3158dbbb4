"""Spellings told from pieces."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.tokenizer.spelling import BYTE_NAMES, read_spelling
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, unigram, wordpiece


def spelled(document: Any) -> Any:
    """Of a document's vocabulary and added tokens."""
    vocabulary = document["model"]["vocab"]
    pieces = [row[0] for row in vocabulary] if isinstance(vocabulary, list) else list(vocabulary)
    added = [token["content"] for token in document["added_tokens"]]
    return read_spelling([*pieces, *added], added)


def test_kinds() -> None:
    level, fallback, plain = spelled(byte_level()), spelled(byte_fallback()), spelled(unigram())
    assert level.is_byte_level and len(level.byte_letters) == 256 and "Ġ" in level.name
    assert fallback.has_byte_fallback and len(fallback.byte_tokens) == 256 and "<0xHH>" in fallback.name
    assert plain.space == "▁" and not plain.has_byte_fallback
    assert spelled(wordpiece()).is_word_piece and spelled(wordpiece()).space is None


def test_added_tokens_prove_nothing() -> None:
    marker = "<｜begin▁of▁sentence｜>"
    assert read_spelling(["the", marker, "Ġa"], [marker]).is_byte_level
    assert read_spelling(["the", marker], [marker]).space is None


def test_a_tie_is_not_decided() -> None:
    assert read_spelling(["Ġa", "▁a"], []).space is None


def test_plain_spaces() -> None:
    assert read_spelling([" a", " b", " c", None, ""], []).space == " "
    assert read_spelling([" a", "b c", "d e"], []).space is None
    assert read_spelling([" a", " b", " c"], []).name == "plain text"


@pytest.mark.parametrize("count", [0, 127, 128, 256])
def test_few_byte_tokens_are_words(count: Any) -> None:
    assert read_spelling(["▁a", *BYTE_NAMES[:count]], []).has_byte_fallback == (count >= 128)

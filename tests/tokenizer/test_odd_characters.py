"""Oddities of one text, and of a whole vocabulary at once."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.tokenizer.byte_alphabet import bytes_to_letters
from degarble.tokenizer.odd_characters import odd_pieces, oddity
from degarble.tokenizer.spelling import read_spelling


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<\ue005>", "private-use"),
        ("\ufdd0", "unassigned"),
        ("<\x1b>", "control"),
        ("<\u200b>", "invisible"),
        ("<\udc80>", "lone surrogate"),
        ("\ufffd", "replacement"),
        ("<ï½œUserï½œ>", "mojibake"),
        ("<еnd>", "mixed-scripts"),
    ],
)
def test_kinds(text: Any, kind: Any) -> None:
    found = oddity(text)
    assert found is not None and found.kind == kind


@pytest.mark.parametrize("text", ["", "<|end|>", "\n\t\r", "<｜User｜>", "客", "<é>", "naïve", "क\u094d\u200dष", "ÀÖ"])
def test_none(text: Any) -> None:
    assert oddity(text) is None


def test_pieces_in_both_spellings() -> None:
    letters = [bytes_to_letters(f" {char}".encode()) for char in ("\ue005", "客", "\U0010fffd", "î", "x")]
    assert odd_pieces(read_spelling(["Ġx", "î", *letters], [])) == [letters[0], letters[2]]
    pieces = ["▁\ue005", "▁\ue005\ue006", "▁x", "\ufdd0", "▁客"]
    assert odd_pieces(read_spelling(pieces, [])) == [pieces[0], pieces[1], pieces[3]]

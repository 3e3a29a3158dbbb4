"""The texts of a stress run."""

from __future__ import annotations

import unicodedata

from degarble.tokenizer.corpora import TEXTS_PER_CORPUS, corpus_names, make_corpus


def test_a_run_has_more_than_a_thousand_texts() -> None:
    assert len(corpus_names()) * TEXTS_PER_CORPUS >= 1000


def test_the_same_seed_gives_the_same_texts() -> None:
    for name in corpus_names():
        texts = make_corpus(name, seed=3, count=5)
        assert texts == make_corpus(name, seed=3, count=5) != make_corpus(name, seed=4, count=5)
        assert all(text.encode().decode() == text for text in texts)


def test_hard_things_are_in() -> None:
    emoji = "".join(make_corpus("emoji"))
    assert all(part in emoji for part in ("\u200d", "\ufe0f\u20e3", "\U000e007f", "\U0001f3fb"))
    combining = "".join(make_corpus("combining"))
    assert unicodedata.is_normalized("NFD", combining) and not unicodedata.is_normalized("NFC", combining)
    assert any(ord(char) >= 0x20000 for char in "".join(make_corpus("rare-han")))

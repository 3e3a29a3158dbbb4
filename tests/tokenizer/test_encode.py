"""Encoding, and text that must stay text."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.tokenizer.detokenize import Detokenizer
from degarble.tokenizer.encode import Encoder, LongestMatch
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.special_tokens import KEEP
from tests.tokenizer import small_tokenizers as small

TYPED = ("say <|end|> now", "<｜User｜>", "<|end|><|end|>", "a<tool>b<", "<|en<|end|>d|>")


@pytest.mark.parametrize("text", TYPED)
def test_what_a_user_types_never_becomes_a_control_id(text: str, tmp_path: Path) -> None:
    tokenizer = small.stored(tmp_path, small.byte_level())
    encoder = Encoder(tokenizer)
    ids = encoder.encode_as_text(text)
    assert not tokenizer.added_tokens.keys() & set(ids)
    assert Detokenizer(tokenizer, special=KEEP).decode(ids) == text
    assert tokenizer.added_tokens.keys() & set(encoder.encode(text))


def test_tokens_inside_one_another(tmp_path: Path) -> None:
    document = small.byte_level()
    first = document["added_tokens"][-1]["id"] + 1
    document["added_tokens"] += [small.added(first, "<a<b>", special=True), small.added(first + 1, "<b>", special=True)]
    tokenizer = small.stored(tmp_path, document)
    ids = Encoder(tokenizer).encode_as_text("x<a<b>")
    assert not {first, first + 1} & set(ids)
    assert Detokenizer(tokenizer, special=KEEP).decode(ids) == "x<a<b>"


def test_a_gguf_vocabulary_is_spelled_by_longest_match(golden: Path) -> None:
    tokenizer = load_tokenizer(golden / "llama.cpp-q4_0" / "model-Q4_0.gguf")
    encoder = Encoder(tokenizer)
    assert encoder.method == "longest-match"
    for text in ("The capital of France is Paris.", "客单价 🌶", "a\n\n  b"):
        assert Detokenizer(tokenizer).decode(encoder.encode(text)) == text


def test_bytes_without_a_token_are_left_out(tmp_path: Path) -> None:
    tokenizer = small.stored(tmp_path, small.unigram())
    assert Detokenizer(tokenizer).decode(LongestMatch(tokenizer).encode(" the客Q.")) == "the客."

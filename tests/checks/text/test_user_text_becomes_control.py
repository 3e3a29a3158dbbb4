"""TOK420: words, flags, and what every tokenizer does."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.finding import Severity
from degarble.tokenizer.byte_alphabet import byte_letters
from degarble.tokenizer.sentencepiece_pieces import USER_DEFINED, read_pieces, with_kind
from tests.checks.text.text_findings import findings, gguf, in_folder, loud
from tests.family_patients import family_patients
from tests.memory_source import MemorySource
from tests.tokenizer.small_tokenizers import added, byte_fallback, byte_level


def with_tokens(*entries: Any) -> Any:
    """A byte-level tokenizer with these added tokens: content and flags that differ."""
    document = byte_level()
    end = len(document["model"]["vocab"])
    document["added_tokens"] = [
        {**added(end + at, content, special=True), **flags} for at, (content, flags) in enumerate(entries)
    ]
    return document


SIBLINGS: list[tuple[str, dict[str, bool]]] = [(f"<|{name}|>", {}) for name in "abcdefgh"]


@pytest.mark.parametrize(
    "content", ["<|end|>", "</s>", "[INST]", "  ", "\n\n", "▁▁", "eng_Latn", "<0x0A>", ">>TITLE<<", ""]
)
def test_markers_are_silent(content: Any) -> None:
    assert not in_folder("TOK420", with_tokens((content, {})))


@pytest.mark.parametrize("content", ["user", "the", "你好", "of the", "2024", "▁the"])
@pytest.mark.parametrize("special", [True, False])
def test_words(content: Any, special: Any) -> None:
    (finding,) = in_folder("TOK420", with_tokens((content, {"special": special})))
    assert finding.severity is Severity.WARNING and finding.location.token == content


def test_single_character_of_another_vocabulary() -> None:
    document = byte_fallback()
    document["added_tokens"].append(added(document["model"]["vocab"]["x"], "x", special=False))
    (finding,) = in_folder("TOK420", document)
    assert finding.location.token == "x"


def test_whole_words_only_is_what_was_wanted() -> None:
    assert not in_folder("TOK420", with_tokens(("protein", {"special": False, "single_word": True})))


def test_markers_that_are_not_special() -> None:
    (finding,) = in_folder("TOK420", with_tokens(("<｜User｜>", {"special": False}), ("<h1>", {"special": False})))
    assert finding.severity is Severity.INFO and finding.measured["tokens"] == 2


@pytest.mark.parametrize("flag", ["lstrip", "rstrip"])
def test_swallowed_spaces(flag: Any) -> None:
    """One out of line is a slip, all of them are a form."""
    (finding,) = in_folder("TOK420", with_tokens(("<|x|>", {flag: True}), *SIBLINGS))
    assert finding.severity is Severity.WARNING and finding.location.token == "<|x|>"
    (finding,) = in_folder("TOK420", with_tokens(*((content, {flag: True}) for content, _ in SIBLINGS)))
    assert finding.severity is Severity.INFO
    assert not in_folder("TOK420", with_tokens(("<mask>", {flag: True}), *SIBLINGS))


def test_marker_between_spaces_only() -> None:
    (finding,) = in_folder("TOK420", with_tokens(("<|x|>", {"single_word": True}), *SIBLINGS))
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word", "normalized"])
def test_flags_disagree(flag: Any) -> None:
    document = with_tokens(*SIBLINGS)
    token = document["added_tokens"][0]
    same = {"content": token["content"], "special": True, flag: False}
    decoder = {str(token["id"]): same}
    assert not in_folder("TOK420", document, tokenizer_config={"added_tokens_decoder": decoder})
    decoder = {str(token["id"]): {**same, flag: True}}
    (finding,) = in_folder("TOK420", document, tokenizer_config={"added_tokens_decoder": decoder})
    assert finding.location.key == f"added_tokens_decoder.{token['id']}.{flag}"
    assert finding.fix is not None and finding.fix.safe


@pytest.mark.parametrize(
    "decoder", [None, [], {"x": {}}, {"-1": {}}, {"9" * 30: {}}, {"0": 1}, {"0": {"content": "x", "lstrip": 1}}]
)
def test_odd_listings(decoder: Any) -> None:
    assert not in_folder("TOK420", with_tokens(*SIBLINGS), tokenizer_config={"added_tokens_decoder": decoder})


def test_gguf() -> None:
    letters = dict.fromkeys(byte_letters(), 1)
    tokens = {"<|end|>": 3, **letters, "Ġthe": 1, "<think>": 4}
    assert not loud(findings("TOK420", gguf("gpt2", tokens)))
    for kind in (3, 4):
        (finding,) = loud(findings("TOK420", gguf("gpt2", {**tokens, "Ġthe": kind})))
        assert finding.location.key == "tokenizer.ggml.token_type"


def test_sentencepiece_word_is_user_defined() -> None:
    pytest.importorskip("sentencepiece")
    raw = (family_patients() / "llama-2-sentencepiece" / "tokenizer.model").read_bytes()
    word = next(piece for piece in read_pieces(raw, "tokenizer.model") if piece.text == "abc")
    assert not findings("TOK420", MemorySource({"tokenizer.model": raw}))
    (finding,) = findings("TOK420", MemorySource({"tokenizer.model": with_kind(raw, word, USER_DEFINED)}))
    assert finding.location.token == "abc" and finding.location.key == "pieces"

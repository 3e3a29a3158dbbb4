"""TOK416: what is by design, and what makes pieces unreachable."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.finding import Severity
from degarble.target import open_target
from degarble.tokenizer.byte_alphabet import byte_letters
from tests.checks.text.text_findings import findings, gguf, in_folder, loud
from tests.family_patients import family_patients
from tests.tokenizer.small_tokenizers import added, byte_fallback, byte_level, unigram, wordpiece


def with_normalizer(document: Any, *steps: Any) -> Any:
    """The same tokenizer with this normaliser in front of its own."""
    own = [document["normalizer"]] if document["normalizer"] else []
    return {**document, "normalizer": {"type": "Sequence", "normalizers": [*steps, *own]}}


def replace(pattern: Any, content: Any) -> Any:
    """A Replace step."""
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


@pytest.mark.parametrize("document", [byte_level(), wordpiece()])
def test_none_is_silent(document: Any) -> None:
    assert not in_folder("TOK416", document)


@pytest.mark.parametrize("step", ["NFC", "NFD", "NFKC", "NFKD", "StripAccents"])
def test_forms_are_infos(step: Any) -> None:
    (finding,) = in_folder("TOK416", with_normalizer(byte_level(), {"type": step}))
    assert finding.severity is Severity.INFO and finding.measured["altered"] != 0


def test_spelling_of_spaces_is_no_change() -> None:
    """Only a U+2581 of the user's own is lost, by design."""
    prepend = {"type": "Prepend", "prepend": "▁"}
    for document in (byte_fallback(), with_normalizer(byte_fallback(), prepend)):
        (finding,) = in_folder("TOK416", document)
        assert finding.measured["probes"] == ["U+2581"]


@pytest.mark.parametrize(
    "step",
    [
        {"type": "Lowercase"},
        replace("\n", " "),
        replace(r"[0-9]", "0"),
        replace("  +", " "),
        replace("e", ""),
    ],
    ids=str,
)
def test_pieces_that_cannot_be_reached(step: Any) -> None:
    (finding,) = in_folder("TOK416", with_normalizer(byte_level(), step))
    assert finding.severity is Severity.WARNING and finding.measured["unreachable"] != 0


def test_added_tokens_are_out_of_reach() -> None:
    """Gemma's line breaks are cut out of a text before it is normalised."""
    document = byte_level()
    document["added_tokens"].append(added(len(document["model"]["vocab"]) + 3, "\n", special=False))
    assert not loud(in_folder("TOK416", with_normalizer(document, replace("\n", " "))))


def test_uncased_vocabulary() -> None:
    """What lower case takes away is not in the vocabulary."""
    (finding,) = in_folder("TOK416", with_normalizer(wordpiece(), {"type": "Lowercase"}))
    assert finding.severity is Severity.INFO


def test_trimming_the_ends_is_no_change() -> None:
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    assert not in_folder("TOK416", with_normalizer(byte_level(), strip))


def test_refused_normalizer_is_not_judged() -> None:
    assert not in_folder("TOK416", with_normalizer(byte_level(), {"type": "Unheard"}))


def test_sentencepiece() -> None:
    pytest.importorskip("sentencepiece")
    (finding,) = findings("TOK416", open_target(family_patients() / "llama-2-sentencepiece"))
    assert finding.location.key == "normalizer_spec" and finding.severity is Severity.INFO


def test_gguf_switches() -> None:
    tokens = {"<pad>": 3, **dict.fromkeys(byte_letters(), 1), "Ġthe": 1}
    assert not findings("TOK416", gguf("gpt2", tokens))
    (finding,) = findings("TOK416", gguf("gpt2", tokens, **{"ggml.remove_extra_whitespaces": True}))
    assert finding.severity is Severity.INFO
    assert not findings("TOK416", gguf("gpt2", tokens, **{"ggml.remove_extra_whitespaces": False}))


def test_unigram_is_an_info() -> None:
    (finding,) = in_folder("TOK416", with_normalizer(unigram(), {"type": "NFKC"}))
    assert finding.severity is Severity.INFO

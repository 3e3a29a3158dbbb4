"""TOK414: each step that spoils a stream, and the forms that do not."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.finding import Severity
from degarble.tokenizer import detokenize
from degarble.tokenizer.byte_alphabet import byte_letters
from degarble.tokenizer.sentencepiece_pieces import CONTROL, UNUSED, read_pieces, with_kind
from degarble.tokenizer.spelling import BYTE_NAMES
from degarble.tokenizer.utf8 import decode_available
from tests.checks.text.test_decoder_mismatch import llama
from tests.checks.text.text_findings import findings, gguf, in_folder, loud
from tests.family_patients import family_patients
from tests.memory_source import MemorySource
from tests.tokenizer.small_tokenizers import added, byte_fallback, byte_level, unigram, wordpiece


def strip(start: int, stop: int, content: str = " ") -> dict[str, Any]:
    """A Strip step."""
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


def replace(content: str, **pattern: str) -> dict[str, Any]:
    """A Replace step."""
    return {"type": "Replace", "pattern": pattern, "content": content}


@pytest.mark.parametrize("document", [byte_level(), byte_fallback(strip=0), llama(), unigram(), wordpiece()])
def test_each_kind_is_silent(document: Any) -> None:
    assert not in_folder("TOK414", document)


@pytest.mark.parametrize(
    "step",
    [
        strip(0, 1),
        strip(1, 0, "a"),
        strip(1, 0, "\n"),
        strip(0, 1, "\t"),
        replace(" ", Regex=r"\s+"),
        replace(".", String=" ."),
        replace("", String="e"),
        replace("", Regex="[^ -~]"),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [byte_level, llama])
def test_step_behind_the_decoder(make: Any, step: Any) -> None:
    document = make()
    decoder = document["decoder"]
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    document["decoder"] = {"type": "Sequence", "decoders": [*steps, step]}
    found = in_folder("TOK414", document)
    assert [f.location.key for f in found] == [f"decoder.decoders.{len(steps)}"]
    assert found[0].severity is Severity.ERROR


def test_strip_of_every_token() -> None:
    document = llama()
    document["decoder"]["decoders"] = [s for s in document["decoder"]["decoders"] if s["type"] != "Fuse"]
    (finding,) = in_folder("TOK414", document)
    assert finding.location.key == "decoder.decoders.2"


@pytest.mark.parametrize(("start", "severity"), [(2, Severity.ERROR), (4, Severity.ERROR)])
def test_more_is_stripped_than_was_prepended(start: Any, severity: Any) -> None:
    document = llama()
    document["decoder"]["decoders"][3] = strip(start, 0)
    (finding,) = in_folder("TOK414", document)
    assert finding.severity is severity and finding.measured["dropped"] == start


def test_one_space_stripped_where_none_was_prepended() -> None:
    (finding,) = in_folder("TOK414", byte_fallback(strip=1))
    assert finding.severity is Severity.WARNING


def test_repeated_tokens_collapse() -> None:
    document = byte_level()
    speech = {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": False}
    document["decoder"] = {"type": "Sequence", "decoders": [speech, document["decoder"]]}
    (finding,) = in_folder("TOK414", document)
    assert finding.location.key == "decoder.decoders.0"


@pytest.mark.parametrize("letter", ["Ċ", "Ã", "a"])
def test_letter_of_a_byte_is_special(letter: Any) -> None:
    document = byte_level()
    at = document["model"]["vocab"][letter]
    document["added_tokens"].append(added(at, letter, special=True))
    (finding,) = loud(in_folder("TOK414", document))
    assert finding.location.token_id == at
    document["added_tokens"][-1]["special"] = False
    assert not in_folder("TOK414", document)


def test_byte_token_is_special() -> None:
    document = byte_fallback(strip=0)
    at = document["model"]["vocab"]["<0x0A>"]
    document["added_tokens"].append(added(at, "<0x0A>", special=True))
    (finding,) = in_folder("TOK414", document)
    assert finding.location.token == "<0x0A>"


def test_unused_types_in_gguf() -> None:
    letters = {"<|end|>": 3, **dict.fromkeys(byte_letters(), 1), "Ġthe": 1, "[PAD300]": 5, "<unused1>": 5}
    assert not findings("TOK414", gguf("gpt2", letters))
    (finding,) = findings("TOK414", gguf("gpt2", {**letters, "Ġthe": 5, "Ċ": 5}))
    assert {place.token for place in finding.all_places} == {"Ġthe", "Ċ"}
    pieces = {"<s>": 3, **dict.fromkeys(BYTE_NAMES, 6), "▁": 1, "▁the": 1}
    (finding,) = findings("TOK414", gguf("llama", {**pieces, "<0xE4>": 5}))
    assert finding.location.token == "<0xE4>"
    (finding,) = findings("TOK414", gguf("llama", {**pieces, "<0xE4>": 3}))
    assert finding.location.key == "tokenizer.ggml.token_type"


def test_own_stream_is_really_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a decoder that loses the last byte of what it holds back, the self-check speaks."""
    right = decode_available
    monkeypatch.setattr(
        detokenize, "decode_available", lambda data, *, final=False: right(data[:-1] if final else data, final=final)
    )
    found = in_folder("TOK414", byte_level())
    assert found and found[0].fold == "own stream"


@pytest.mark.parametrize("kind", [CONTROL, UNUSED])
def test_sentencepiece_word_that_is_never_shown(kind: int) -> None:
    pytest.importorskip("sentencepiece")
    raw = (family_patients() / "llama-2-sentencepiece" / "tokenizer.model").read_bytes()
    word = next(piece for piece in read_pieces(raw, "tokenizer.model") if piece.text == "abc")
    assert not findings("TOK414", MemorySource({"tokenizer.model": raw}))
    (finding,) = findings("TOK414", MemorySource({"tokenizer.model": with_kind(raw, word, kind)}))
    assert finding.location.token == "abc"

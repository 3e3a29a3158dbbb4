"""TOK402: which of two files is named, and which differences are choices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from degarble.finding import Severity
from degarble.tokenizer.sentencepiece_pieces import exchanged, read_pieces
from tests.checks.text.family_files import files_of, mixed, values_of
from tests.checks.text.text_findings import findings, in_folder
from tests.memory_source import MemorySource
from tests.tokenizer.small_tokenizers import byte_level

END = "<|end|>"


def id_of(text: str) -> int:
    return int(next(entry["id"] for entry in byte_level()["added_tokens"] if entry["content"] == text))


def test_listing_against_the_vocabulary() -> None:
    (finding,) = in_folder("TOK402", byte_level(), added_tokens={END: 3})
    assert (finding.location.file, finding.location.key) == ("added_tokens.json", END)
    assert finding.measured["id"] == 3 and finding.bound["id"] == id_of(END)


def test_majority_names_the_vocabulary() -> None:
    decoder = {"3": {"content": END, "special": True}}
    (finding, _) = in_folder(
        "TOK402", byte_level(), added_tokens={END: 3}, tokenizer_config={"added_tokens_decoder": decoder}
    )
    assert finding.location.file == "tokenizer.json" and finding.fix is not None and not finding.fix.safe


def test_role_id_of_a_word() -> None:
    (finding,) = in_folder("TOK402", byte_level(), tokenizer_config={"bos_token": END}, config={"bos_token_id": 7})
    assert finding.severity is Severity.ERROR and finding.location.key == "bos_token_id"


def test_other_special_token_as_bos_is_a_warning() -> None:
    document = byte_level()
    document["added_tokens"][1]["special"] = True
    other = document["added_tokens"][1]["id"]
    (finding,) = in_folder("TOK402", document, tokenizer_config={"bos_token": END}, config={"bos_token_id": other})
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("config", [{"eos_token_id": 7}, {"pad_token_id": -1}, {"bos_token_id": None}])
def test_left_to_others(config: Any) -> None:
    """Stop ids are judged together by TPL506 and TPL507; -1 is no id."""
    named = {"bos_token": END, "eos_token": END, "pad_token": END}
    assert not in_folder("TOK402", byte_level(), tokenizer_config=named, config=config)


def test_post_processor() -> None:
    document = values_of("llama-3", "tokenizer.json")
    document["post_processor"]["special_tokens"]["<|begin_of_text|>"]["ids"] = [77]
    (finding,) = findings("TOK402", mixed("llama-3", tokenizer=document))
    assert finding.location.file == "tokenizer.json" and finding.measured["id"] == 77


def test_second_vocabulary() -> None:
    vocabulary = byte_level()["model"]["vocab"]
    one, other = list(vocabulary)[10:12]
    assert not in_folder("TOK402", byte_level(), vocab=vocabulary)
    changed = {**vocabulary, one: vocabulary[other], other: vocabulary[one]}
    (finding,) = in_folder("TOK402", byte_level(), vocab=changed)
    assert finding.location.file == "vocab.json" and finding.measured["pieces"] == 2


def test_sentencepiece_beside_tokenizer_json() -> None:
    raw = files_of("llama-2-sentencepiece")["tokenizer.model"]
    healthy = {**files_of("llama-2"), "tokenizer.model": raw}
    assert not findings("TOK402", MemorySource(healthy))
    pieces = read_pieces(raw, "tokenizer.model")
    broken = {**healthy, "tokenizer.model": exchanged(raw, pieces[900], pieces[901])}
    (finding,) = findings("TOK402", MemorySource(broken))
    assert finding.location.file == "tokenizer.model" and finding.measured["pieces"] == 2


@pytest.mark.parametrize("raw", [b"", b"IQ== 0\nIg== 1\n", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x0a"])
def test_tokenizer_model_of_another_kind_is_silent(raw: bytes) -> None:
    files = {"tokenizer.json": json.dumps(byte_level()).encode(), "tokenizer.model": raw}
    assert not findings("TOK402", MemorySource(files))

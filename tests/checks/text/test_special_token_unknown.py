"""TOK401: what counts as known, in each form of storage."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.finding import Severity
from tests.checks.text.family_files import in_model, mixed, values_of
from tests.checks.text.text_findings import findings, in_folder
from tests.tokenizer.small_tokenizers import byte_level

STRANGE = "<|nobody|>"


@pytest.mark.parametrize(
    ("file", "values", "key"),
    [
        ("tokenizer_config", {"eos_token": STRANGE}, "eos_token"),
        ("special_tokens_map", {"pad_token": {"content": STRANGE}}, "pad_token"),
        ("tokenizer_config", {"additional_special_tokens": ["<|end|>", STRANGE]}, "additional_special_tokens.1"),
        ("tokenizer_config", {"extra_special_tokens": {"image": STRANGE}}, "extra_special_tokens.image"),
        ("tokenizer_config", {"added_tokens_decoder": {"7": {"content": STRANGE}}}, "added_tokens_decoder.7"),
        ("added_tokens", {STRANGE: 9}, STRANGE),
    ],
)
def test_each_place(file: str, values: Any, key: str) -> None:
    (finding,) = in_folder("TOK401", byte_level(), **{file: values})
    assert (finding.location.file, finding.location.key, finding.severity) == (f"{file}.json", key, Severity.ERROR)


def test_post_processor() -> None:
    entry = {STRANGE: {"id": STRANGE, "ids": [3], "tokens": [STRANGE]}}
    document = {**byte_level(), "post_processor": {"processors": [{"special_tokens": entry}]}}
    (finding,) = in_folder("TOK401", document)
    assert finding.location.key == f"post_processor.processors.0.special_tokens.{STRANGE}"


def test_idle_roles_are_a_warning() -> None:
    (finding,) = in_folder("TOK401", byte_level(), tokenizer_config={"unk_token": "<unk>"})
    assert finding.severity is Severity.WARNING


def test_new_id_past_the_rows() -> None:
    document = byte_level()
    rows = len(document["model"]["vocab"]) + 3
    (finding,) = findings("TOK401", in_model(document, rows, tokenizer_config={"eos_token": STRANGE}))
    assert f"past the {rows} rows" in finding.message


def test_many_are_one_finding() -> None:
    listed = [f"<|{number}|>" for number in range(5000)]
    (finding,) = in_folder("TOK401", byte_level(), tokenizer_config={"additional_special_tokens": listed})
    assert finding.measured["unknown"] == 5000 and "4999 more" in finding.message


def test_sentencepiece_is_extended_by_lists() -> None:
    """A Llama 2 fine-tune: the pad token lies past tokenizer.model, and added_tokens.json says where."""
    config = {**values_of("llama-2-sentencepiece", "tokenizer_config.json"), "pad_token": "<pad>"}
    assert not findings(
        "TOK401", mixed("llama-2-sentencepiece", tokenizer_config=config, added_tokens={"<pad>": 32000})
    )
    (finding,) = findings("TOK401", mixed("llama-2-sentencepiece", tokenizer_config=config))
    assert finding.location.key == "pad_token"


@pytest.mark.parametrize("values", [{"eos_token": ""}, {"eos_token": None}, {"eos_token": 7}, [], {"eos_token": {}}])
def test_no_name_is_silent(values: Any) -> None:
    assert not in_folder("TOK401", byte_level(), tokenizer_config=values)

"""Who writes BOS, by file."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.templates.bos import adders, leading_count, needed_bos
from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.families import families
from degarble.tokenizer.interface import Tokenizer

BOS = {"SpecialToken": {"id": "<s>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}


def tokenizer(file: str, **pipeline: Any) -> Tokenizer:
    """One without pieces."""
    return Tokenizer(
        file=file, kind="plain", pieces=[], added_tokens={}, build_table=lambda: ByteTable(pieces=[]), pipeline=pipeline
    )


def counts(file: str, config: dict[str, Any], **pipeline: Any) -> dict[str, int]:
    """Place -> how many."""
    return {f"{adder.file}:{adder.key}": adder.count for adder in adders(tokenizer(file, **pipeline), config, "<s>")}


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ({"type": "TemplateProcessing", "single": [BOS, TEXT]}, 1),
        ({"type": "TemplateProcessing", "single": [BOS, BOS, TEXT]}, 2),
        ({"type": "TemplateProcessing", "single": [TEXT, BOS]}, 0),
        ({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]"}}, TEXT]}, 0),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"single": [BOS, TEXT]}]}, 1),
        ({"type": "ByteLevel"}, 0),
        ({"single": "x"}, 0),
        ({"single": [None, 3]}, 0),
        ({"processors": [None, []]}, 0),
        ([], 0),
    ],
)
def test_post_processor(processor: Any, expected: int) -> None:
    assert counts("tokenizer.json", {}, post_processor=processor) == {"tokenizer.json:post_processor": expected}


def test_config_and_class() -> None:
    assert counts("tokenizer.json", {"add_bos_token": False}) == {"tokenizer_config.json:add_bos_token": 0}
    assert counts("tokenizer.json", {"add_bos_token": True}) == {"tokenizer_config.json:add_bos_token": 1}
    assert counts("tokenizer.model", {"tokenizer_class": "LlamaTokenizerFast"}) == {
        "tokenizer_config.json:tokenizer_class": 1
    }
    assert counts("tokenizer.json", {"tokenizer_class": 3, "add_bos_token": "yes"}) == {}


def test_gguf_and_its_defaults() -> None:
    key = "m.gguf:tokenizer.ggml.add_bos_token"
    assert counts("m.gguf", {}, model="llama") == {key: 1}
    assert counts("m.gguf", {}, model="llama", add_bos_token=False) == {key: 0}
    assert counts("m.gguf", {}, model="gpt2", pre="llama-bpe") == {key: 1}
    assert counts("m.gguf", {}, model="gpt2", pre="qwen2") == {key: 0}


def test_leading_count() -> None:
    assert [leading_count(text, "<s>") for text in ("", "x<s>", "<s>x<s>", " <s> <s>\nx", "<s><s><s>")] == [
        0,
        0,
        1,
        2,
        3,
    ]
    assert leading_count("x", "") == 0


def test_needed_bos() -> None:
    llama = [family for family in families() if family.name == "Llama 3"]
    assert needed_bos(llama, "<|begin_of_text|>", frozenset(), "") == "<|begin_of_text|>"
    assert needed_bos(llama, None, frozenset(["<|begin_of_text|>"]), "") == "<|begin_of_text|>"
    assert needed_bos([], "<s>", frozenset(), "[INST]") == "<s>"
    assert needed_bos([], "<s>", frozenset(), "<|user|>") is None
    assert needed_bos([], None, frozenset(), "") is None

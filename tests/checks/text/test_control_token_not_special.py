"""TOK405: which tokens are control, and what published flags are healthy."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.finding import Severity
from tests.checks.text.family_files import mixed, values_of
from tests.checks.text.text_findings import findings, gguf, in_folder
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level

ROLES = {"bos_token": "<s>", "eos_token": "</s>"}


def flagged(document: Any, text: str, special: bool) -> Any:
    for entry in document["added_tokens"]:
        if entry["content"] == text:
            entry["special"] = special
    return document


def test_eos_without_its_flag() -> None:
    document = flagged(byte_fallback(), "</s>", False)
    (finding,) = in_folder("TOK405", document, tokenizer_config=ROLES)
    assert (finding.location.token, finding.severity) == ("</s>", Severity.ERROR)


def test_eos_that_is_a_piece_only() -> None:
    document = byte_fallback()
    document["added_tokens"] = [entry for entry in document["added_tokens"] if entry["content"] != "</s>"]
    (finding,) = in_folder("TOK405", document, tokenizer_config=ROLES)
    assert "ordinary piece" in finding.message and finding.measured["added"] is False


def test_pad_without_its_flag_is_a_warning() -> None:
    (finding,) = in_folder("TOK405", byte_level(), tokenizer_config={"pad_token": "<tool>"})
    assert finding.severity is Severity.WARNING


def test_flags_of_two_files() -> None:
    at = next(entry["id"] for entry in byte_level()["added_tokens"] if entry["content"] == "<tool>")
    decoder = {str(at): {"content": "<tool>", "special": True}}
    (finding,) = in_folder("TOK405", byte_level(), tokenizer_config={"added_tokens_decoder": decoder})
    assert finding.severity is Severity.WARNING and finding.location.key == f"added_tokens_decoder.{at}"
    template = {"added_tokens_decoder": decoder, "chat_template": "{{ '<tool>' }}"}
    (finding,) = in_folder("TOK405", byte_level(), tokenizer_config=template)
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize("types", [{"<s>": 3, "</s>": 3}, {"<s>": 3, "</s>": 4}, {"<s>": 4, "</s>": 3}])
def test_gguf_control_types(types: Any) -> None:
    assert not findings("TOK405", gguf("gpt2", {"a": 1, "b": 1, **types}))


def test_gguf_marker_of_the_template_typed_normal() -> None:
    source = gguf("gpt2", {"a": 1, "<|im_end|>": 1, "<tools>": 1}, chat_template="<tools>{{ x }}<|im_end|>")
    (finding,) = findings("TOK405", source)
    assert (finding.location.key, finding.location.token_id) == ("tokenizer.ggml.token_type", 1)


@pytest.mark.parametrize("patient", ["deepseek-v3", "qwen3", "gemma-2-sentencepiece"])
def test_published_flags_are_silent(patient: str) -> None:
    """DeepSeek's roles and Qwen's think tokens are not special; Gemma's turn markers are user defined."""
    assert not findings("TOK405", mixed(patient))


def test_user_defined_without_other_files() -> None:
    assert not findings(
        "TOK405",
        mixed("gemma-2-sentencepiece", tokenizer_config=None, special_tokens_map=None),
    )


def test_turn_marker_taken_out_of_gemma() -> None:
    document = values_of("gemma-3", "tokenizer.json")
    document["added_tokens"] = [entry for entry in document["added_tokens"] if entry["content"] != "<end_of_turn>"]
    (finding,) = findings("TOK405", mixed("gemma-3", tokenizer=document))
    assert finding.location.token == "<end_of_turn>" and finding.severity is Severity.ERROR

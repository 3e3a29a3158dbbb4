"""TOK406: characters without a meaning, and texts that look alike."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.finding import Severity
from degarble.tokenizer.byte_alphabet import byte_letters, bytes_to_letters
from tests.checks.text.text_findings import findings, gguf, in_folder, loud
from tests.tokenizer.small_tokenizers import added, byte_fallback, byte_level

BOS = "<｜begin▁of▁sentence｜>"
FOLDED = "<|begin_of_sentence|>"


def with_tokens(*contents: Any, special: Any = True) -> Any:
    """A byte-level tokenizer with these added tokens."""
    document = byte_level()
    end = len(document["model"]["vocab"])
    document["added_tokens"] = [added(end + at, text, special=special) for at, text in enumerate(contents)]
    return document


@pytest.mark.parametrize(
    "content",
    ["<|end|>", BOS, "\n\n", "\t", "  ", "<é>", "[客]", "👨\u200d👩\u200d👧", "<конец>", "▁<PRE>", "eng_Latn"],
)
def test_ordinary_tokens_are_silent(content: Any) -> None:
    assert not loud(in_folder("TOK406", with_tokens(content)))


@pytest.mark.parametrize(
    "content",
    [
        "<|\ue005|>",
        "\U000f0000",
        "<a\ufdd0>",
        "<\x00>",
        "<|en\u200bd|>",
        "<|end|>\ufeff",
        "<\u202eend>",
        "<a\u200db>",
        "<\ufffd>",
        "<ï½œUserï½œ>",
        bytes_to_letters("<｜User｜>".encode()),
        "<|еnd|>",
        "<\u0378>",
    ],
)
def test_odd_characters(content: Any) -> None:
    (finding,) = loud(in_folder("TOK406", with_tokens(content)))
    assert finding.severity is Severity.WARNING and finding.location.token == content


def test_what_a_damaged_text_was() -> None:
    (finding,) = loud(in_folder("TOK406", with_tokens("<ï½œUserï½œ>")))
    assert "<｜User｜>" in finding.message


@pytest.mark.parametrize(
    ("right", "written"),
    [
        (BOS, FOLDED),
        (FOLDED, BOS),
        (BOS, BOS.replace("▁", " ")),
        ("<|end|>", "<|en\u200bd|>"),
        ("<|end|>", "<|e\ue005nd|>"),
    ],
)
def test_one_file_writes_a_look_alike(right: Any, written: Any) -> None:
    document = with_tokens(right)
    (finding,) = loud(in_folder("TOK406", document, special_tokens_map={"bos_token": {"content": written}}))
    assert (finding.location.file, finding.location.key) == ("special_tokens_map.json", "bos_token")
    assert finding.fix is not None and finding.fix.safe
    assert not loud(in_folder("TOK406", document, special_tokens_map={"bos_token": right}))


def test_two_files_against_the_tokenizer() -> None:
    others: dict[str, Any] = {"special_tokens_map": {"bos_token": BOS}, "tokenizer_config": {"bos_token": BOS}}
    (finding,) = loud(in_folder("TOK406", with_tokens(FOLDED), **others))
    assert finding.location.file == "tokenizer.json"
    assert finding.fix is not None and not finding.fix.safe


def test_other_texts_are_not_alike() -> None:
    document = with_tokens(BOS)
    assert not loud(
        in_folder("TOK406", document, special_tokens_map={"bos_token": "<s>", "eos_token": "<|end_of_text|>"})
    )


def test_template_alone_is_another_rule() -> None:
    template = "{{ '<|User|>' + messages[0]['content'] + '<tools>' }}"
    assert not loud(in_folder("TOK406", with_tokens("<｜User｜>"), tokenizer_config={"chat_template": template}))


def test_template_and_file_against_the_tokenizer() -> None:
    others: dict[str, Any] = {"special_tokens_map": {"eos_token": "<|User|>"}}
    (finding,) = loud(in_folder("TOK406", with_tokens("<｜User｜>"), **others))
    assert finding.location.file == "special_tokens_map.json"
    others["tokenizer_config"] = {"chat_template": "{{ '<|User|>' }}"}
    (finding,) = loud(in_folder("TOK406", with_tokens("<｜User｜>"), **others))
    assert finding.location.file == "tokenizer.json"


def test_two_tokens_that_look_alike() -> None:
    (finding,) = loud(in_folder("TOK406", with_tokens("<｜User｜>", "<|User|>")))
    assert len(finding.all_places) == 2
    assert not loud(in_folder("TOK406", with_tokens("▁▁", "__", "  ")))


def test_ordinary_pieces_are_an_info() -> None:
    (finding,) = in_folder("TOK406", byte_level())
    assert finding.severity is Severity.INFO and finding.measured["pieces"] == 1
    document = byte_fallback()
    document["model"]["vocab"]["▁\uf0b7"] = len(document["model"]["vocab"])
    (finding,) = in_folder("TOK406", document)
    assert finding.severity is Severity.INFO and "\\uf0b7" in finding.message


def test_gguf() -> None:
    letters = dict.fromkeys(byte_letters(), 1)
    assert not findings("TOK406", gguf("gpt2", {"<|end|>": 3, **letters, "Ġthe": 1}))
    (finding,) = findings("TOK406", gguf("gpt2", {"<|\ue005|>": 3, **letters, "Ġthe": 1}))
    assert finding.location.key == "tokenizer.ggml.tokens"
    (finding,) = findings("TOK406", gguf("gpt2", {"<|\udcff|>": 3, **letters, "Ġthe": 1}))
    assert "surrogate" in finding.message

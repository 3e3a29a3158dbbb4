"""TOK404: doubled ids and doubled texts."""

from __future__ import annotations

from tests.checks.text.text_findings import findings, gguf, in_folder
from tests.tokenizer.small_tokenizers import added, byte_fallback, byte_level, unigram, wordpiece


def test_healthy() -> None:
    for document in (byte_level(), byte_fallback(), unigram(), wordpiece()):
        assert not in_folder("TOK404", document)


def test_two_pieces_with_one_id() -> None:
    document = byte_level()
    one, other = list(document["model"]["vocab"])[20:22]
    document["model"]["vocab"][one] = document["model"]["vocab"][other]
    (finding,) = in_folder("TOK404", document)
    assert finding.location.key == "model.vocab" and repr(one) in finding.message and repr(other) in finding.message


def test_token_added_over_a_piece() -> None:
    document = byte_level()
    document["added_tokens"].append(added(9, "<over>", special=False))
    (finding,) = in_folder("TOK404", document)
    assert finding.location.key == "added_tokens" and "id 9" in finding.message


def test_one_text_under_two_ids() -> None:
    document = byte_level()
    end = document["added_tokens"][-1]["id"]
    document["added_tokens"].append(added(end + 1, "<|end|>", special=True))
    (finding,) = in_folder("TOK404", document)
    assert finding.location.token == "<|end|>" and finding.measured["ids"] == [end - 2, end + 1]


def test_unigram_pieces_twice() -> None:
    document = unigram()
    document["model"]["vocab"][5] = document["model"]["vocab"][6]
    (finding,) = in_folder("TOK404", document)
    assert finding.measured["ids"] == [5, 6]


def test_listings() -> None:
    (finding,) = in_folder("TOK404", byte_level(), added_tokens={"<a>": 5, "<b>": 5, "<c>": 6})
    assert finding.location.file == "added_tokens.json" and "id 5 is both '<a>' and '<b>'" in finding.message
    decoder = {"5": {"content": "<a>"}, "6": {"content": "<a>"}}
    (finding,) = in_folder("TOK404", byte_level(), tokenizer_config={"added_tokens_decoder": decoder})
    assert "'<a>' is both 5 and 6" in finding.message


def test_gguf() -> None:
    assert not findings("TOK404", gguf("gpt2", {"a": 1, "b": 1, "<|end|>": 3, "[PAD3]": 5, "[PAD4]": 5}))

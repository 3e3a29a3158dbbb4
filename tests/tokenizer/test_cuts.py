"""Cuts of stored tokenizers and of names in GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from degarble.errors import EvidenceUnjudged
from degarble.tokenizer.cuts import Cutter, byte_level, cutter_of, gguf_pretokenizers, spaces_replaced
from degarble.tokenizer.gguf_vocabulary import read_gguf_vocabulary
from degarble.tokenizer.interface import Tokenizer
from tests.tokenizer.small_tokenizers import byte_fallback, stored
from tests.tokenizer.trained import trained


def gguf(model: str, **others: Any) -> Tokenizer:
    keys = {f"tokenizer.ggml.{key}": value for key, value in others.items()}
    return read_gguf_vocabulary({"tokenizer.ggml.model": model, "tokenizer.ggml.tokens": ["a", "b"], **keys}, "x.gguf")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("default", ["x", "Ġ", "123", "4567", "Ġ", "!="]),
        ("gpt-2", ["x", "Ġ1234567", "Ġ!="]),
        ("smollm", ["x", "Ġ", *"1234567", "Ġ!="]),
        ("llama-bpe", ["x", "Ġ", "123", "456", "7", "Ġ!="]),
        ("qwen2", ["x", "Ġ", *"1234567", "Ġ!="]),
        ("deepseek-r1-qwen", ["x", "Ġ", *"1234567", "Ġ!="]),
        ("deepseek-v3", ["x", "Ġ", "123", "456", "7", "Ġ!="]),
        ("gpt-4o", ["x", "Ġ", "123", "456", "7", "Ġ!="]),
    ],
)
def test_names(name: str, expected: list[str]) -> None:
    found = cutter_of(gguf("gpt2", pre=name)).cuts("x 1234567 !=")
    assert "".join(found) == "".join(expected)
    if name != "default":
        assert found == expected


def test_a_missing_name_is_the_default() -> None:
    text = "x 1234567 !="
    assert cutter_of(gguf("gpt2")).cuts(text) == cutter_of(gguf("gpt2", pre="default")).cuts(text)


@pytest.mark.parametrize("name", ["no-such-name", "tekken", 7, True])
def test_unknown_names(name: Any) -> None:
    with pytest.raises(EvidenceUnjudged):
        cutter_of(gguf("gpt2", pre=name))


def test_every_regex_is_accepted() -> None:
    for meaning in gguf_pretokenizers().values():
        if meaning.regexes is not None:
            assert "".join(Cutter(None, byte_level(meaning.regexes)).cuts("a 1\n")) == "aĠ1Ċ"


@pytest.mark.parametrize(("space", "expected"), [(None, "▁a▁b"), (True, "▁a▁b"), (False, "a▁b")])
def test_sentencepiece_in_gguf(space: bool | None, expected: str) -> None:
    others = {} if space is None else {"add_space_prefix": space}
    assert cutter_of(gguf("llama", **others)).cuts("a b") == [expected]
    with pytest.raises(EvidenceUnjudged):
        cutter_of(gguf("t5"))


def test_stored(tmp_path: Path) -> None:
    assert cutter_of(stored(tmp_path / "a", trained())).cuts("a b") == ["a", "Ġb"]
    assert cutter_of(stored(tmp_path / "b", byte_fallback())).cuts("a b") == ["a▁b"]
    assert Cutter(None, None).cuts("") == [] and Cutter(None, None).cuts("a b") == ["a b"]
    assert Cutter(spaces_replaced(prepend=True), None).normalize("a b") == "▁a▁b"


@pytest.mark.parametrize(
    "part", [{"type": "NoSuchStep"}, {"type": "Split", "pattern": {"Regex": "("}}, {}, {"type": 1}]
)
def test_refused_parts(part: Any) -> None:
    with pytest.raises(EvidenceUnjudged, match="normalizer, pre_tokenizer"):
        Cutter(None, part, "tokenizer.json")

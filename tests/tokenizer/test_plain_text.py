"""Words and markers."""

from __future__ import annotations

import pytest

from degarble.tokenizer.plain_text import is_bracketed, is_plain_text


@pytest.mark.parametrize("text", ["user", "▁the", "Ġthe", "你好", "of the", "{", "a", "2024"])
def test_plain(text: str) -> None:
    assert is_plain_text(text)


@pytest.mark.parametrize("text", ["", "<|user|>", "eng_Latn", "  ", "▁▁", "\n", "客", ">>TITLE<<", "a\n"])
def test_not_plain(text: str) -> None:
    assert not is_plain_text(text)


def test_brackets() -> None:
    assert is_bracketed("<unused7>") and is_bracketed("[PAD300]") and is_bracketed("▁<extra_id_0>")
    assert not is_bracketed("the") and not is_bracketed("<>") and not is_bracketed("")

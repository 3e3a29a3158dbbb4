"""Skeletons."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.tokenizer.look_alike import code_points, mixes_scripts, skeleton

BOS = "<｜begin▁of▁sentence｜>"


@pytest.mark.parametrize(
    "text",
    [
        BOS,
        "<|begin_of_sentence|>",
        "<|begin of sentence|>",
        "＜｜begin▁of▁sentence｜＞",
        "<│bеgin_of_sentence│>",
        BOS + "\u200b",
    ],
)
def test_alike(text: Any) -> None:
    assert skeleton(text) == "<|begin_of_sentence|>"


@pytest.mark.parametrize("text", ["<|end_of_sentence|>", "<|begin_of_Sentence|>", "<begin_of_sentence>", ""])
def test_not_alike(text: Any) -> None:
    assert skeleton(text) != skeleton(BOS)


def test_scripts() -> None:
    assert (
        mixes_scripts("<|еnd|>")
        and not mixes_scripts("<конец>")
        and not mixes_scripts("<α>")
        and not mixes_scripts("a")
    )


def test_code_points() -> None:
    assert code_points(BOS) == "U+FF5C U+2581"
    assert code_points("<|a|>") == "U+003C U+007C U+003E"

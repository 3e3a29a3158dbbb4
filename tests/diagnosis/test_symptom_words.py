"""Words of people: English, Chinese, unknown ones, and texts that are no description."""

from __future__ import annotations

import pytest

from degarble.diagnosis.symptom_words import understand
from degarble.errors import UsageError

SAID = [
    ("all exclamation marks", 1),
    ("模型输出全是感叹号", 1),
    ("！！！！", 1),
    ("the same word repeated forever", 3),
    ("garbage at every block boundary", 7),
    ("only when batch size is large", 12),
    ("only the second time the same prompt with a cached prefix", 13),
    ("needs a restart after hours", 16),
    ("流式输出时中文乱码", 20),
    ("中文乱码", 21),
    ("replies contain invisible control characters", 22),
    ("the answer does not stop", 24),
    ("数学计算结果都是零", 28),
    ("I see another user's text", 34),
    ("JSON tool calls are malformed", 37),
    ("no text, all tokens used", 2),
]


@pytest.mark.parametrize(("text", "row"), SAID)
def test_a_text_means_its_row(text: str, row: int) -> None:
    assert row in understand(text).rows


def test_unknown_words_are_said_to_be_unknown() -> None:
    found = understand("the frobnicator exclamation quux")
    assert found.rows == (1,) and found.unknown == ("frobnicator", "quux")
    assert understand("紫罗兰").unknown == ("紫罗兰",)


@pytest.mark.parametrize("text", ["", "   ", "the of and", "\x00\u202e", "wuzzle"])
def test_what_says_nothing_means_no_row(text: str) -> None:
    assert understand(text).rows == ()


def test_a_novel_is_refused() -> None:
    with pytest.raises(UsageError, match="2000"):
        understand("x" * 2001)


def test_many_unknown_words_are_bounded() -> None:
    assert len(understand(" ".join(f"w{n}x" for n in range(300))).unknown) == 20

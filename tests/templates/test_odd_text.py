"""Characters that nobody meant, where they touch a marker or a message; elsewhere they are the template's own affair."""

from __future__ import annotations

import pytest

from degarble.templates.conversations import ANSWER, QUESTION, SYSTEM
from degarble.templates.odd_text import odd_texts


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        (f"<|im_start|>user\\n{QUESTION}<|im_end|>", "\\n"),
        (f"### Instruction:\\n{QUESTION}\n\n### Response:\n", "\\n"),
        (f"{QUESTION}\n### Response:\\n", "\\n"),
        (f"<|im_start|>user\r\n{QUESTION}<|im_end|>", "\r"),
        (f"<s>[INST]\u00a0{QUESTION} [/INST]", "\u00a0"),
        (f"\ufeff<s>{QUESTION}", "\ufeff"),
        (f"{SYSTEM}\u200b{QUESTION}", "\u200b"),
        (f"<|a|>{ANSWER}\\t<|b|>", "\\t"),
        (f"<|start|>assistant \u2028{ANSWER}", "\u2028"),
    ],
)
def test_found_at_markers_messages_and_ends(text: str, odd: str) -> None:
    (found,) = odd_texts(text)
    assert found.text == odd
    assert found.name and QUESTION not in found.around


@pytest.mark.parametrize(
    "text",
    [
        f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n",
        f"<s>Write \\n for a new line, and 5\u00a0km.\n{QUESTION}",
        f"<s>{QUESTION}</s>",
        "",
    ],
)
def test_silent_elsewhere(text: str) -> None:
    assert list(odd_texts(text)) == []

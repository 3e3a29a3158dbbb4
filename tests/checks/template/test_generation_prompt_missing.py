"""TPL505: formats without a generation prompt are silent."""

from __future__ import annotations

import pytest

from tests.checks.template.template_folders import CHATML, findings, folder
from tests.templates.test_turns import ALPACA, GLM, HARMONY, LLAMA_2

ALWAYS = CHATML.replace("{% if add_generation_prompt %}", "{% if true %}")


@pytest.mark.parametrize(
    "text",
    [
        CHATML,
        LLAMA_2,
        GLM,
        HARMONY,
        ALPACA,
        ALWAYS,
        CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif"),
        CHATML.replace("{{ m.content }}", "{% if m.role == 'assistant' %}<think></think>{% endif %}{{ m.content }}"),
        CHATML + "{% if not add_generation_prompt %}<|endoftext|>{% endif %}",
        "{% for m in messages %}{{ m.content }}\n{% endfor %}",
        "{% if %}",
    ],
)
def test_silent(text: str) -> None:
    assert findings("TPL505", folder(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "{% set add_generation_prompt = false %}" + CHATML,
        CHATML.replace("<|im_start|>assistant\n{% endif", "<|im_start|>user\n{% endif"),
        CHATML.replace("<|im_start|>assistant\n{% endif", "<|im_start|>{% endif"),
        CHATML.replace("<|im_start|>assistant\n{% endif", "Assistant:{% endif"),
        HARMONY.replace("<|start|>assistant{% endif", "<|start|>user{% endif"),
        ALPACA.replace("### Response:\n{% endif %}", "{% endif %}", 2).replace(
            "{% else %}", "{% else %}### Response:\n"
        ),
    ],
)
def test_found(text: str) -> None:
    (found,) = findings("TPL505", folder(text))
    assert str(found.severity) == "warning" and "open with" in found.message

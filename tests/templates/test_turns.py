"""How templates open and close the assistant's turn."""

from __future__ import annotations

import pytest

from degarble.templates.renderings import TemplateRenderings, render_template
from degarble.templates.turns import closings, opening_items, openings, prompt_items
from degarble.tokenizer.chat_template import ChatTemplate

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA_2 = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"
)
GLM = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n<think>{% endif %}"
)
HARMONY = (
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}"
    "{% if m.role == 'assistant' and loop.last %}<|return|>{% else %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
ALPACA = (
    "{% for m in messages %}{% if m.role == 'user' %}### Instruction:\n{{ m.content }}\n\n"
    "{% else %}### Response:\n{{ m.content }}\n\n{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}"
)


def tried(text: str) -> TemplateRenderings:
    """A template after its conversations."""
    template = ChatTemplate(file="chat_template.jinja", key=None, name="default", text=text)
    return render_template(template, {"bos_token": "<s>", "eos_token": "</s>"})


@pytest.mark.parametrize(
    ("text", "opening", "prompt"),
    [
        (CHATML, ["<|im_start|>", "assistant"], ["<|im_start|>", "assistant"]),
        (LLAMA_2, [], []),
        (GLM, ["<|assistant|>"], ["<|assistant|>", "<think>"]),
        (HARMONY, ["<|start|>", "assistant", "<|message|>"], ["<|start|>", "assistant"]),
        (ALPACA, ["#", "#", "#", "Response", ":"], ["#", "#", "#", "Response", ":"]),
        ("{{ raise_exception('no') }}", None, None),
    ],
)
def test_openings(text: str, opening: list[str] | None, prompt: list[str] | None) -> None:
    assert (opening_items(tried(text)), prompt_items(tried(text))) == (opening, prompt)


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        (CHATML, ["<|im_start|>", "<|im_end|>"], ["<|im_end|>"]),
        (CHATML, ["<|im_start|>"], []),
        (LLAMA_2, ["<s>", "</s>"], ["</s>"]),
        (GLM, ["<|user|>", "<|assistant|>"], ["<|user|>"]),
        (HARMONY, ["<|start|>", "<|end|>", "<|return|>"], ["<|return|>", "<|end|>"]),
        (ALPACA, ["#", "##"], ["##"]),
        (ALPACA, ["</s>"], []),
    ],
)
def test_closings(text: str, tokens: list[str], expected: list[str]) -> None:
    assert closings(tried(text), tokens) == expected


def test_text_before_the_question() -> None:
    assert openings(tried(GLM)) == "[gMASK]<sop><|user|>\n"
    assert openings(tried("{% if %}")) == ""

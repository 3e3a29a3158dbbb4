"""TPL508: the texts count, not the templates."""

from __future__ import annotations

import pytest

from tests.checks.template.template_folders import CHATML, config_with, findings, folder, gguf


@pytest.mark.parametrize(
    "text", [CHATML, "{# a comment #}" + CHATML, CHATML.replace("{{ m.role }}", "{{ m['role'] }}")]
)
def test_equal_texts(text: str) -> None:
    assert findings("TPL508", folder(text), folder(CHATML)) == []
    assert findings("TPL508", folder(None, jinja=text), folder(CHATML)) == []
    assert findings("TPL508", gguf(text), folder(CHATML)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CHATML + " ", "differs from character"),
        (CHATML.replace("<|im_end|>\n", "<|im_end|>"), "differs from character"),
        (CHATML + "{% if tools %}x{% endif %}", "tools"),
        ("{% if %}", "the reference renders it"),
        ("{{ raise_exception('x') }}", "the reference renders it"),
    ],
)
def test_other_texts(text: str, words: str) -> None:
    reference = CHATML + "{% if tools %}{% endif %}"
    (found,) = findings("TPL508", folder(text), folder(reference))
    assert words in found.message and found.location.key == "chat_template"


def test_missing_templates() -> None:
    (found,) = findings("TPL508", folder(None), folder(None, jinja=CHATML))
    assert found.location.file == "chat_template.jinja"
    named = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": CHATML}]
    (found,) = findings("TPL508", folder(CHATML), folder(None, tokenizer_config=config_with([*named, named[1]])))
    assert found.location.key == "chat_template.1"
    assert findings("TPL508", folder(CHATML), folder(None)) == []


def test_refused_by_both() -> None:
    text = "{{ raise_exception('x') }}"
    assert findings("TPL508", folder(text), folder(text)) == []

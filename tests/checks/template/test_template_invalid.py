"""TPL502: what does not render, and what only looks broken."""

from __future__ import annotations

import json

import pytest

from degarble.finding import Severity
from tests.checks.template.template_folders import CHATML, config_with, findings, folder, gguf, loud, severities
from tests.memory_source import MemorySource
from tests.templates.hostile_templates import COSTLY, OTHERS, UNSAFE

REFUSES_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML
ALTERNATES = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
    "[{{ m.content }}]{% endfor %}"
)
PARTS = "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}"
TOOLS = "{% for t in tools %}{{ t.function.name }}{% endfor %}" + CHATML


@pytest.mark.parametrize(
    "text", [CHATML, REFUSES_SYSTEM, ALTERNATES, PARTS, "{% generation %}" + CHATML + "{% endgeneration %}"]
)
def test_healthy(text: str) -> None:
    assert findings("TPL502", folder(text)) == []
    assert findings("TPL502", gguf(text)) == []


def test_template_of_tools_may_need_tools() -> None:
    named = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": TOOLS}]
    assert findings("TPL502", folder(None, tokenizer_config=config_with(named))) == []
    assert severities("TPL502", folder(TOOLS)) == ["error"]


@pytest.mark.parametrize(
    ("text", "severity", "words"),
    [
        (CHATML[:-20], "error", "does not parse"),
        (CHATML.replace("m.content", "m.value"), "error", "was said"),
        (CHATML.replace("{{ m.content }}", "{{ '<' + m.value }}"), "error", "fails"),
        ("", "error", "was said"),
        ("{{ raise_exception('never') }}", "warning", "refuses even a single question: never"),
        ("{{ bos_token + '' }}" + CHATML, "error", "'bos_token' is undefined"),
        (CHATML + "{{ functions.name }}", "warning", "'functions' is undefined"),
        (CHATML.replace("m.content", "m.content | e"), "warning", "changes what was said"),
        (CHATML + "{% if messages[0].role == 'system' %}{{ none.x.y }}{% endif %}", "warning", "system"),
        (CHATML + "{% if tools %}{{ tools[0].a.b }}{% endif %}", "warning", "tools"),
        ("{% if messages|length > 1 %}{{ none.x.y }}{% endif %}" + CHATML, "error", "user, assistant"),
        (CHATML.replace("messages %}", "messages if m.role == 'user' %}"), "warning", "was said"),
        (CHATML + "{% if false %}{{ x.__class__ }}{% endif %}", "error", "__class__"),
    ],
)
def test_broken(text: str, severity: str, words: str) -> None:
    for source in (folder(text), folder(None, jinja=text), gguf(text)):
        (found,) = findings("TPL502", source)
        assert str(found.severity) == severity and words in found.message


@pytest.mark.parametrize("text", [*COSTLY.values(), *UNSAFE.values()])
def test_hostile_templates_are_errors(text: str) -> None:
    (found,) = findings("TPL502", folder(None, jinja=text))
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize("name", [name for name, (_, failure) in OTHERS.items() if failure.name == "UNJUDGED"])
def test_what_cannot_be_judged_is_said(name: str) -> None:
    from degarble.api import check_source

    report = check_source(folder(OTHERS[name][0] + CHATML), chosen=["TPL502"])
    assert report.findings == () and report.status == "partial"


@pytest.mark.parametrize("stored", [0, 1.5, True, {}, [], [1], [{"name": "x"}], [{"template": 3}], {"default": CHATML}])
def test_key_that_holds_no_template(stored: object) -> None:
    (found,) = findings("TPL502", folder(stored))
    assert found.location.key == "chat_template" and found.severity is Severity.ERROR


def test_gguf_key_that_is_no_text() -> None:
    for stored in (7, True, ["x"]):
        (found,) = findings("TPL502", gguf(None, tokenizer__chat_template=stored, eos_token_id=3))
        assert found.location.key == "tokenizer.chat_template" and found.severity is Severity.ERROR
    assert findings("TPL501", gguf(None, tokenizer__chat_template=7, eos_token_id=3)) == []


def test_file_too_large_and_files_without_templates() -> None:
    large = MemorySource({"chat_template.jinja": b"x" * (2 << 20), "tokenizer_config.json": b"[]"})
    assert [f.severity for f in findings("TPL502", large)] == [Severity.ERROR]
    assert findings("TPL502", MemorySource({"tokenizer_config.json": b"null", "chat_template.json": b"[1]"})) == []


def test_many_templates_end_soon() -> None:
    named = [{"name": f"t{at}", "template": COSTLY["nested loops"] + str(at)} for at in range(500)]
    data = {"tokenizer_config.json": json.dumps({"chat_template": named}).encode()}
    assert 0 < len(loud("TPL502", MemorySource(data))) <= 8


def test_one_finding_a_template() -> None:
    assert (
        len(findings("TPL502", folder("{{ ().__class__ }}{% for a in range(99999) %}{% for b in range(99999) %}"))) == 1
    )

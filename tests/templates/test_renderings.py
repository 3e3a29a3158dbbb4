"""Conversations are tried in the form that the template expects."""

from __future__ import annotations

from degarble.templates.conversations import ASK, SPECIAL_PROMPT, SYSTEM_PROMPT, TOOL_ROUND, TOOLS_PROMPT, TWO_TURNS
from degarble.templates.program import Failure
from degarble.templates.renderings import render_template
from degarble.tokenizer.chat_template import ChatTemplate


def render(text: str, **tokens: str):  # type: ignore[no-untyped-def]
    """One template."""
    return render_template(ChatTemplate(file="x", key=None, name="default", text=text), tokens)


def test_contents_in_parts_are_tried_second() -> None:
    tried = render("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}")
    assert tried.text(TWO_TURNS) and tried.text(SPECIAL_PROMPT)


def test_special_tokens_are_variables() -> None:
    assert (
        render("{{ bos_token }}{{ messages[0].content }}{{ pad_token }}", bos_token="<s>").text(ASK).startswith("<s>")
    )


def test_tools_are_offered_where_they_are_asked_for() -> None:
    assert TOOLS_PROMPT.name not in render("{{ messages }}").results
    tried = render("{{ messages }}{% if tools %}{{ tools | tojson }}{% endif %}")
    assert "tide_table" in (tried.text(TOOLS_PROMPT) or "") and TOOL_ROUND.name in tried.results


def test_refused_roles_do_not_end_the_others() -> None:
    text = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('x') }}{% endif %}{{ m.content }}{% endfor %}"
    tried = render(text)
    assert tried.text(TWO_TURNS) and tried.text(SYSTEM_PROMPT) is None
    assert tried.results[SYSTEM_PROMPT.name].problem.failure is Failure.REFUSED


def test_costly_templates_are_tried_once() -> None:
    tried = render("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    assert len(tried.results) == 1 and tried.units_left == 0


def test_plain_texts_leave_out_tools() -> None:
    names = [conversation.name for conversation, _ in render("{{ messages }}{{ tools }}").plain_texts()]
    assert TOOLS_PROMPT.name not in names and SPECIAL_PROMPT.name not in names

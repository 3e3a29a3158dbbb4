"""What is read in a template without running it."""

from __future__ import annotations

from degarble.templates.program import Program


def test_written_texts_leave_out_what_is_only_looked_for() -> None:
    text = (
        "<|a|>{% if '<|b|>' in messages[0].content %}{{ '<|c|>' + x.split('<|d|>')[0] }}{% endif %}"
        "{% set y = '<|e|>' %}{{ y ~ '<|f|>' if x == '<|g|>' else '<|h|>' }}{{ d['<|i|>'] }}{# <|j|> #}"
    )
    written = "".join(Program(text).source.written)
    assert [letter for letter in "abcdefghij" if f"<|{letter}|>" in written] == list("acefh")


def test_names_are_those_that_are_read() -> None:
    names = Program("{% set a = tools %}{% for m in messages %}{{ m }}{% endfor %}").source.names
    assert {"tools", "messages", "m"} <= names and "a" not in names


def test_hidden_attributes_are_found_in_any_branch() -> None:
    text = (
        "{% if false %}\n{{ a.__class__ }}{{ a['__mro__'] }}{{ a | attr('__bases__') }}{{ a.b }}{{ a['c'] }}{% endif %}"
    )
    hidden = Program(text).source.hidden
    assert {name for name, _ in hidden} == {"__class__", "__mro__", "__bases__"}
    assert {line for _, line in hidden} == {2}


def test_template_that_does_not_parse_has_no_facts() -> None:
    source = Program("{% if %}").source
    assert source.written == () and not source.names and source.hidden == ()


def test_long_sums_are_walked_without_recursion() -> None:
    text = "{{ " + "'a' + " * 90 + "'b' }}"
    assert len(Program(text).source.written) == 91

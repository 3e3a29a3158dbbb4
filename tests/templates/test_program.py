"""Templates run as transformers runs them, and hostile ones end in a clear problem, in bounded time and memory."""

from __future__ import annotations

import datetime
import re
import sys
import time
import tracemalloc

import pytest

from degarble.templates.conversations import PLAIN, WITH_TOOLS
from degarble.templates.program import MAX_REASON, MAX_UNITS, Failure, Problem, Program
from tests.templates.feature_templates import FEATURES
from tests.templates.hostile_templates import COSTLY, OTHERS, UNSAFE

MAX_SECONDS = 5.0
"""Processor time on a loaded machine; alone, the slowest takes 0.6."""
MAX_BYTES = 64 << 20


def problem_of(text: str, units: int = MAX_UNITS) -> Problem | None:
    """Why a template gives no text."""
    program = Program(text, units)
    result = program.problem or program.run({})
    return result if isinstance(result, Problem) else None


def problem_within_bounds(text: str) -> Problem | None:
    """The same, soon."""
    Program("x")  # the first imports jinja2
    start = time.process_time()
    problem = problem_of(text)
    assert time.process_time() - start < MAX_SECONDS
    return problem


@pytest.mark.parametrize("text", COSTLY.values(), ids=COSTLY)
def test_costly_templates_end_soon(text: str) -> None:
    problem = problem_within_bounds(text)
    assert problem is not None and problem.failure is Failure.COSTLY, problem
    assert len(problem.reason) <= MAX_REASON


@pytest.mark.parametrize("name", [name for name in COSTLY if re.search("text|times|join|replace|split|fields", name)])
def test_costly_templates_take_little_memory(name: str) -> None:
    Program("x")
    tracemalloc.start()
    try:
        problem_of(COSTLY[name])
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", UNSAFE.values(), ids=UNSAFE)
def test_attribute_walks_are_named(text: str) -> None:
    problem = problem_of(text)
    assert problem is not None and problem.failure is Failure.UNSAFE, problem
    assert problem.line == 1


@pytest.mark.parametrize(("text", "failure"), OTHERS.values(), ids=OTHERS)
def test_other_damage_has_its_own_name(text: str, failure: Failure) -> None:
    problem = problem_within_bounds(text)
    assert problem is not None and problem.failure is failure, problem


def test_line_of_the_template_is_named() -> None:
    syntax, failed = problem_of("a\n{% if %}"), problem_of("a\n\n{{ x.y.z }}")
    refused = problem_of("\n{% if true %}\n{{ raise_exception('no system role') }}\n{% endif %}")
    assert (syntax and syntax.line, failed and failed.line, refused and refused.line) == (2, 3, 3)
    assert refused is not None and refused.failure is Failure.REFUSED and refused.reason == "no system role"
    assert str(refused) == "refuses the conversation in line 3: no system role"


def test_budget_is_shared_by_all_runs() -> None:
    text = "{% for i in range(900) %}{% endfor %}"
    once = Program(text)
    once.run({})
    program = Program(text, units=5 * (MAX_UNITS - once.units_left) // 2)
    assert program.run({}) == "" and program.run({}) == ""
    result = program.run({})
    assert isinstance(result, Problem) and result.failure is Failure.COSTLY
    assert program.units_left == 0


def test_verdict_does_not_depend_on_time() -> None:
    left = {Program(FEATURES["filters of lists"], 5000).units_left for _ in range(3)}
    assert len(left) == 1


def test_reason_is_short_and_printable() -> None:
    problem = problem_of("{{ raise_exception('\\ud800' ~ 'x\n' * 5000) }}")
    assert problem is not None and len(problem.reason) <= MAX_REASON + 8
    problem.reason.encode()


@pytest.mark.parametrize("text", ["", "\udc80{{ '\udc80' }}", "{{ none }}", "plain"])
def test_small_and_odd_templates_run(text: str) -> None:
    assert problem_of(text) is None


def test_recursion_limit_of_the_caller_is_kept() -> None:
    limit = sys.getrecursionlimit()
    problem_of(COSTLY["macro that calls itself"])
    assert sys.getrecursionlimit() == limit


@pytest.mark.engine
@pytest.mark.parametrize("text", FEATURES.values(), ids=FEATURES)
def test_renders_as_transformers_does(text: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    program = Program(text)
    assert program.problem is None
    for conversation in (*PLAIN, *WITH_TOOLS):
        variables = conversation.variables()
        messages, tools = variables.pop("messages"), variables.pop("tools")
        shown, _ = render_jinja_template([messages], tools=tools, chat_template=text, **variables)
        assert program.run(conversation.variables()) == shown[0]


def test_a_refilled_program_runs_as_often_as_it_is_asked() -> None:
    text = FEATURES["filters of lists"]
    once = Program(text)
    once.run({})
    program = Program(text, units=MAX_UNITS - once.units_left)
    for _ in range(3):
        program.refill()
        assert isinstance(program.run({}), str)
    assert any(isinstance(program.run({}), Problem) for _ in range(20))


def test_the_date_is_the_clock_s() -> None:
    text = "{{ strftime_now('%d %b %Y') }}"
    assert Program(text, clock=lambda: datetime.datetime(2031, 2, 3)).run({}) == "03 Feb 2031"
    assert Program(text).run({}) == "26 Jul 2025"

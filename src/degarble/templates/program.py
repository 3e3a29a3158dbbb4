"""One chat template, compiled once and run under a budget. Nothing that it does ends in an exception."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from degarble.templates.literals import TemplateSource, read_source

if TYPE_CHECKING:
    from jinja2 import Template

    from degarble.templates.environment import Clock, GuardedEnvironment

MAX_TEMPLATE_CHARACTERS = 200_000
"""Ten times the longest in use."""
MAX_UNITS = 200_000
"""Steps of all renderings of one template; those in use need some 3,000 for twelve; a hostile one takes half a second."""
MAX_REASON = 300
"""Characters of an error message, which may quote the template."""
FILE_NAME = "<template>"


class Failure(StrEnum):
    """Why a template gave no text."""

    SYNTAX = "does not parse"
    REFUSED = "refuses the conversation"
    FAILED = "fails"
    UNSAFE = "reaches for the inside of Python"
    COSTLY = "asks for too much work"
    UNJUDGED = "uses what cannot be judged here"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, and in which line of the template."""

    failure: Failure
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        place = f" in line {self.line}" if self.line is not None else ""
        return f"{self.failure}{place}: {self.reason}"


class Program:
    """A template that can be run several times; they share one budget."""

    def __init__(self, text: str, units: int = MAX_UNITS, clock: Clock | None = None) -> None:
        """`clock`: what `strftime_now` reads; None: the same day in every run."""
        self.text = text
        self.source = TemplateSource()
        """What can be read in it without running it; empty if it does not parse."""
        self.problem: Problem | None = None
        """Why it cannot be run at all."""
        self._units, self._clock = units, clock
        self._template: Template | None = None
        try:
            self._template = self._compile()
        except Exception as error:
            self.problem = _problem_of(error, self._template)

    def _compile(self) -> Template:
        from jinja2 import Template

        from degarble.templates.budget import TemplateTooCostly
        from degarble.templates.guard import Guard

        if len(self.text) > MAX_TEMPLATE_CHARACTERS:
            raise TemplateTooCostly(f"{len(self.text)} characters, more than {MAX_TEMPLATE_CHARACTERS}")
        tree = self._environment.parse(self.text)
        self.source = read_source(tree)
        code = self._environment.compile(Guard().guard(tree), FILE_NAME, FILE_NAME)
        return Template.from_code(self._environment, code, self._environment.make_globals(None))

    @property
    def units_left(self) -> int:
        """What remains for the next template."""
        return max(0, self._environment.budget.left)

    @cached_property
    def _environment(self) -> GuardedEnvironment:
        from degarble.templates.budget import Budget
        from degarble.templates.environment import GuardedEnvironment

        return GuardedEnvironment(Budget(self._units), self._clock)

    def refill(self) -> None:
        """Begin a new budget: a server runs one template for many requests, and none pays for another."""
        self._environment.budget.left = self._units

    def run(self, variables: Mapping[str, Any]) -> str | Problem:
        """The text for one set of variables, or why there is none."""
        if self._template is None:
            assert self.problem is not None
            return self.problem
        try:
            context = self._template.new_context(dict(variables))
            return "".join(self._template.root_render_func(context))
        except Exception as error:
            return _problem_of(error, self._template)


def _problem_of(error: Exception, template: Template | None) -> Problem:
    from jinja2 import TemplateSyntaxError

    from degarble.templates.budget import TemplateNotJudged, TemplateTooCostly
    from degarble.templates.environment import TemplateRefused, TemplateUnsafe

    kinds: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Failure], ...] = (
        (TemplateTooCostly, Failure.COSTLY),
        (TemplateNotJudged, Failure.UNJUDGED),
        (TemplateRefused, Failure.REFUSED),
        (TemplateUnsafe, Failure.UNSAFE),
        ((TemplateSyntaxError, SyntaxError), Failure.SYNTAX),
    )
    failure = next((failure for kind, failure in kinds if isinstance(error, kind)), Failure.FAILED)
    reason = _said(error)
    if isinstance(error, RecursionError | MemoryError):  # CPython's parser says the second of deep nesting
        failure = Failure.COSTLY if template is not None else Failure.SYNTAX
        reason = "nested too deeply"
    return Problem(failure=failure, reason=reason, line=_line(error, template))


def _said(error: Exception) -> str:
    from jinja2 import TemplateError

    text = (error.message if isinstance(error, TemplateError) else str(error)) or type(error).__name__
    return " ".join(text[:MAX_REASON].encode("utf-8", "backslashreplace").decode().split())


def _line(error: Exception, template: Template | None) -> int | None:
    """The innermost line of the template that was being run, or the one that jinja2 could not parse."""
    from jinja2 import TemplateSyntaxError

    if isinstance(error, TemplateSyntaxError):
        return error.lineno
    found = None
    step: TracebackType | None = error.__traceback__
    while step is not None and template is not None:
        if step.tb_frame.f_code.co_filename == FILE_NAME:
            found = template.get_corresponding_lineno(step.tb_lineno)
        step = step.tb_next
    return found

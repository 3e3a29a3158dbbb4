"""The jinja2 sandbox in which templates run: what transformers and its followers offer, and every step is paid for."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from itertools import chain
from typing import Any, NoReturn

from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner

from degarble.templates.budget import Budget, TemplateNotJudged, TemplateTooCostly
from degarble.templates.costs import FILTERS, METHODS, Cost, free, pay_operator
from degarble.templates.guard import CONCAT, TICK, WEIGH, GenerationTag

MAX_TOKENS = 30_000
"""Words and signs of one template; the longest in use has some 4,000."""
TODAY = datetime.datetime(2025, 7, 26, 12, 0, 0)
"""`strftime_now` is the same in every run, so that reports are."""
MAX_LAYOUT = 200
Clock = Callable[[], datetime.datetime]
CALLABLE = (Macro, LoopContext, BlockReference, Cycler, Joiner)
"""Objects of jinja2 that may be called, and whose methods may."""


class TemplateRefused(TemplateError):
    """The template itself called `raise_exception`."""


class TemplateUnsafe(SecurityError):
    """The template read an attribute that leads to Python itself."""


class TokenLimit(Extension):
    """Ends the parsing of an endless template."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Pass on so many."""
        for number, token in enumerate(stream):
            if number >= MAX_TOKENS:
                raise TemplateTooCostly(f"more than {MAX_TOKENS} words and signs")
            yield token


class GuardedEnvironment(ImmutableSandboxedEnvironment):
    """One environment for one template."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, budget: Budget, clock: Clock | None = None) -> None:
        """`clock` for those who want the true date: servers."""
        self.budget = budget
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=self._printed,
            extensions=[GenerationTag, TokenLimit, loopcontrols],
        )
        self.filters.update(tojson=_tojson, random=lambda values: next(iter(values), ""))
        self.filters = {name: _paying(self, name, call) for name, call in self.filters.items()}
        self.filters |= {WEIGH: self._printed, TICK: budget.spend, CONCAT: self._concat}
        tests: Mapping[str, Any] = self.tests
        self.tests = {name: _paying(self, name, call) for name, call in tests.items()}
        self.globals.update(raise_exception=_refuse, strftime_now=_date_of(clock or _today), lipsum=_unknown)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Every call of a function, method or macro."""
        __self.budget.spend(1)
        __self.budget.weigh((args, kwargs))
        __self._pay_call(__obj, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        __self.budget.weigh(result)
        return result

    def _pay_call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if isinstance(function, Undefined):
            return
        bound = getattr(function, "__wrapped__", function)  # jinja2 wraps `format`
        owner = getattr(bound, "__self__", None)
        if isinstance(owner, str):
            self.budget.weigh(owner)
            cost: Cost = METHODS.get(getattr(bound, "__name__", ""), free)
            cost(self.budget, owner, *args, **kwargs)
        elif isinstance(owner, list | tuple | dict | set | frozenset):
            self.budget.weigh(owner)
        elif not (isinstance(function, CALLABLE) or isinstance(owner, CALLABLE) or self._is_offered(function)):
            raise TemplateNotJudged(f"a call of {type(owner).__name__}.{getattr(bound, '__name__', '?')}")

    def _is_offered(self, function: Any) -> bool:
        return any(function is offered for offered in self.globals.values())

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic."""
        self.budget.weigh(left)
        self.budget.weigh(right)
        pay_operator(self.budget, operator, left, right)
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`a.b`."""
        self.budget.spend(1)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`a[b]`."""
        self.budget.weigh(argument)
        return super().getitem(obj, argument)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Names with underscores lead to Python itself: said at once, where jinja2 waits until the value is used."""
        if attribute.startswith("_"):
            raise TemplateUnsafe(f"access to {attribute!r} of a {type(obj).__name__}")
        return super().unsafe_undefined(obj, attribute)

    def _printed(self, value: Any) -> Any:
        self.budget.weigh(value)
        return value

    def _concat(self, *values: Any) -> str:
        self.budget.weigh(values)
        texts = [str(value) for value in values]
        self.budget.afford_text(sum(map(len, texts)))
        return "".join(texts)


def _paying(environment: GuardedEnvironment, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that pays first; jinja2 hands some of them a context, which weighs nothing."""
    first = int(hasattr(function, "jinja_pass_arg"))
    cost: Cost = FILTERS.get(name, free)
    budget = environment.budget

    @wraps(function)
    def paying(*args: Any, **kwargs: Any) -> Any:
        for value in chain(args[first:], kwargs.values()):
            budget.weigh(value)
        cost(budget, *args[first:], **kwargs)
        result = function(*args, **kwargs)
        budget.weigh(result)
        return result

    return paying


def _refuse(message: object = "") -> NoReturn:
    raise TemplateRefused(str(message))


def _today() -> datetime.datetime:
    return TODAY


def _date_of(clock: Clock) -> Callable[[str], str]:
    """`strftime` of the clock; a layout of a page takes seconds in some C libraries."""

    def strftime_now(layout: str) -> str:
        if len(layout) > MAX_LAYOUT:
            raise TemplateNotJudged(f"a date of more than {MAX_LAYOUT} characters")
        return clock().strftime(layout)

    return strftime_now


def _unknown(*args: Any, **kwargs: Any) -> NoReturn:
    raise TemplateNotJudged("a call of lipsum")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without the HTML escapes of jinja2's own, as transformers has it."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

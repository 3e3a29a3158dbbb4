"""Small, safe expressions over config keys, so that families can be data and not code.

Allowed: names, integers, strings, True, False, None, `()`, `+ - * // %`, comparisons, `in`, `and or not`,
`x if c else y` and `list[index]`. Everything else is refused on compilation, not on use.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

Environment = Mapping[str, object]
_Evaluator = Callable[[Environment], Any]


class ExpressionError(ValueError):
    """The expression uses more than the small language has, or cannot be evaluated with these values."""


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


class Expression(msgspec.Struct, frozen=True):
    """A compiled expression; `text` is what messages show."""

    text: str
    names: frozenset[str]
    _run: _Evaluator

    def evaluate(self, environment: Environment) -> Any:
        """The value with these names. Raises ExpressionError for unknown names and impossible arithmetic."""
        try:
            return self._run(environment)
        except (TypeError, ZeroDivisionError, IndexError) as error:
            raise ExpressionError(f"{self.text!r} cannot be evaluated: {error}") from None


@lru_cache(maxsize=4096)
def compile_expression(text: str) -> Expression:
    """Parse and check once; the same text is used for every layer and every checkpoint."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"{text!r} is not an expression: {error.msg}") from None
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return Expression(text, names, _compile(tree, text))


def _compile(node: ast.expr, text: str) -> _Evaluator:
    match node:
        case ast.Constant(value=bool() | int() | str() | None as value):
            return lambda _: value
        case ast.Tuple(elts=[]):
            return lambda _: ()
        case ast.Name(id=name):
            return lambda environment: _look_up(name, environment)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _two(_BINARY[type(op)], _compile(left, text), _compile(right, text))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _two(_COMPARE[type(op)], _compile(left, text), _compile(right, text))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _compile(operand, text)
            return lambda environment: not inner(environment)
        case ast.BoolOp(op=op, values=values):
            return _chain(isinstance(op, ast.And), [_compile(value, text) for value in values])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choice(_compile(test, text), _compile(body, text), _compile(orelse, text))
        case ast.Subscript(value=value, slice=index):
            return _two(operator.getitem, _compile(value, text), _compile(index, text))
        case _:
            raise ExpressionError(f"{text!r} uses {type(node).__name__}, which expressions do not have")


def _look_up(name: str, environment: Environment) -> object:
    try:
        return environment[name]
    except KeyError:
        raise ExpressionError(f"the name {name!r} is not known here") from None


def _two(function: Callable[[Any, Any], Any], left: _Evaluator, right: _Evaluator) -> _Evaluator:
    return lambda environment: function(left(environment), right(environment))


def _choice(test: _Evaluator, body: _Evaluator, orelse: _Evaluator) -> _Evaluator:
    return lambda environment: body(environment) if test(environment) else orelse(environment)


def _chain(is_and: bool, values: list[_Evaluator]) -> _Evaluator:
    """`and` / `or` with Python's short cut: the value that decides is the result."""

    def run(environment: Environment) -> Any:
        result: Any = None
        for value in values:
            result = value(environment)
            if bool(result) != is_and:
                break
        return result

    return run

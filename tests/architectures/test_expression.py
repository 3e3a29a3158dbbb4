"""The small language: what it computes, and what it refuses."""

from __future__ import annotations

import pytest

from degarble.architectures.expression import ExpressionError, compile_expression


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("heads * head_dim", 12),
        ("layer >= 3 and layer % 2 == 0", True),
        ("None if flag else 7", None),
        ("kinds[layer] == 'full'", True),
        ("layer in skipped or layer not in ()", True),
        ("heads // 2 + 1 - 1", 2),
        ("not flag", False),
        ("'a' if layer < 3 else 'b'", "b"),
    ],
)
def test_value(text: str, value: object) -> None:
    """The operators compute what Python does."""
    kinds = ("linear",) * 4 + ("full",)
    environment = {"heads": 4, "head_dim": 3, "layer": 4, "flag": True, "kinds": kinds, "skipped": (1,)}
    assert compile_expression(text).evaluate(environment) == value


@pytest.mark.parametrize(
    "text",
    [
        "f(1)",
        "a.b",
        "2 ** 9",
        "lambda: 1",
        "[1]",
        "(1, 2)",
        "1.5",
        "a < b < c",
        "{}",
        "a / b",
        "-a",
        "",
        "a b",
        "x[1:2]",
    ],
)
def test_refused(text: str) -> None:
    """Anything beyond the small language is refused on compilation."""
    with pytest.raises(ExpressionError):
        compile_expression(text)


@pytest.mark.parametrize("text", ["unknown", "1 // zero", "'a' + one", "one[0]", "pair[7]"])
def test_impossible(text: str) -> None:
    """Bad values raise the one error of the language."""
    with pytest.raises(ExpressionError):
        compile_expression(text).evaluate({"zero": 0, "one": 1, "pair": (1, 2)})

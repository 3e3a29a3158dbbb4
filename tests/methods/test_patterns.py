"""Patterns of strangers: many, slow and broken ones."""

from __future__ import annotations

import time

from degarble.engines.pattern_set import Pattern
from degarble.formats.scheme import Scheme
from degarble.methods.interface import Declaration
from degarble.methods.patterns import ending_rule, pattern_rules

ONE, TWO = Scheme(method="gptq", num_bits=2), Scheme(method="gptq", num_bits=8)
NAMES = [
    f"model.layers.{layer}.mlp.experts.{expert}.{leaf}"
    for layer in range(60)
    for expert in range(256)
    for leaf in ("gate_proj", "up_proj", "down_proj")
]


def of(rules: tuple, name: str) -> Scheme | None:
    found = Declaration(method="", file="", key="", raw={}, default=None, rules=rules)
    return found.scheme_for(name)


def test_the_first_match_decides() -> None:
    unusable: list[str] = []
    entries = [("a.*", ONE), ("b", ONE), ("ab", TWO), ("b.*z", TWO), ("c", None), ("c.*", ONE)]
    rules = pattern_rules("k", [(Pattern(text, text), scheme) for text, scheme in entries], unusable)
    assert [rule.scheme for rule in rules] == [ONE, TWO, None, ONE]
    assert [of(rules, name) for name in ("ab", "bz", "c", "dab")] == [ONE, ONE, None, None]
    assert unusable == []


def test_broken_patterns_are_left_out() -> None:
    unusable: list[str] = []
    texts = ["(", "x" * 500, "good", "*"]
    rules = pattern_rules("k", [(Pattern(text, text), ONE) for text in texts], unusable)
    assert unusable == ["(", "x" * 500, "*"]
    assert of(rules, "good") == ONE


def test_a_pattern_without_end_is_given_up() -> None:
    unusable: list[str] = []
    texts = [r"(a|aa)+$", "good"]
    rules = pattern_rules("k", [(Pattern(text, text), ONE) for text in texts], unusable)
    begin = time.perf_counter()
    assert of(rules, "a" * 200 + "b") is None
    assert time.perf_counter() - begin < 20
    assert unusable == [r"(a|aa)+$"]
    assert of(rules, "good") == ONE


def test_46_000_names() -> None:
    """A mixture of experts against a hundred patterns of two schemes; the budget is generous for slow machines."""
    entries = [(Pattern(text, text), ONE) for text in (rf".*layers\.{n}\..*down_proj" for n in range(50))]
    entries += [(Pattern(text, text), TWO) for text in (rf"model\.layers\.\d{n}\..*up_proj$" for n in range(10))]
    rules = pattern_rules("k", entries, [])
    begin = time.perf_counter()
    found = [of(rules, name) for name in NAMES]
    assert time.perf_counter() - begin < 5
    assert found.count(ONE) == 50 * 256


def test_endings_are_whole_components() -> None:
    rule = ending_rule("k", ("gate", "mlp.up_proj"), None)
    assert [rule.matches(name) for name in ("gate", "a.gate", "a_gate", "x.mlp.up_proj", "up_proj")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert ending_rule("k", ("gate",), None, invert=True).matches("a.up_proj")

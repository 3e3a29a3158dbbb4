"""Typed reading of hostile config objects."""

from __future__ import annotations

import pytest

from degarble.methods.config_object import ConfigObject, is_count


def test_right_types() -> None:
    config = ConfigObject(
        {"a": "x", "b": True, "c": 3, "d": [1, 2], "e": {"f": 1}, "g": None}, file="config.json", key="q"
    )
    assert (config.text("a"), config.boolean("b"), config.integer("c"), config.pair("d")) == ("x", True, 3, (1, 2))
    assert config.child("e") == {"f": 1} and config.text("g") is None and config.text("absent") is None
    assert config.ill_typed == []


def test_wrong_types_are_noted() -> None:
    config = ConfigObject({"a": 1, "b": "yes", "c": True, "d": [0, 2], "e": []}, file="config.json", key="q")
    assert [config.text("a"), config.boolean("b"), config.integer("c"), config.pair("d")] == [None] * 4
    assert config.child("e") == {}
    assert config.ill_typed == ["q.a", "q.b", "q.c", "q.d", "q.e"]


def test_skip_lists() -> None:
    config = ConfigObject({"a": ["x", 1], "b": "lm_head", "c": ["y"], "d": None}, file="f.json", key="")
    found = config.skips("a", "b", "c", "d")
    assert [(skip.key, skip.entries) for skip in found] == [("a", ("x",)), ("c", ("y",))]
    assert config.ill_typed == ["a", "b"]


@pytest.mark.parametrize(("value", "is_one"), [(3, True), (True, False), (0, False), (3.0, False), (10**9, False)])
def test_counts(value: object, is_one: bool) -> None:
    assert is_count(value) is is_one

"""What can be wrong, what it looks like, and what tells it apart: tables in `data/diagnosis`, read strictly.

The 38 rows of symptoms name hypotheses by id, in order of rank; experiments name, for each answer, the hypotheses under
which it would be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TypeVar

import msgspec

SCHEMA = 1
Table = TypeVar("Table", bound=msgspec.Struct)


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that can be wrong."""

    title: str
    part: str
    """What a healthy copy would be swapped in for: weights, kv cache, tokenizer …"""
    prior: float
    """How usual it is, before anything is known of the case."""
    rules: tuple[str, ...]
    """Rules that prove it."""
    remedy: str


class Symptom(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table: what people see."""

    title: str
    said: tuple[tuple[str, ...], ...]
    """Combinations of concepts; a text that has all of one means this row."""
    rules: tuple[str, ...]
    """Rules of live endpoints that see it."""
    guards: tuple[str, ...]
    """Guards of our server that see it."""
    causes: tuple[str, ...]
    """Hypotheses in order of rank."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that can be done to tell hypotheses apart."""

    title: str
    command: str
    seconds: float
    needs: tuple[str, ...]
    answers: Mapping[str, tuple[str, ...]]
    """What is seen -> the hypotheses under which it is."""


class _Hypotheses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    hypothesis: dict[str, Hypothesis]


class _Symptoms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    row: dict[str, Symptom]


class _Experiments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    experiment: dict[str, Experiment]


def read_data(schema: type[Table], name: str) -> Table:
    """One of our own files. Raises ValueError where it breaks its schema: a slip must not switch a row off."""
    import tomllib

    raw = files("degarble").joinpath("data", "diagnosis", name).read_bytes()
    return msgspec.convert(tomllib.loads(raw.decode("utf-8")), schema)


@cache
def hypotheses() -> Mapping[str, Hypothesis]:
    """By id."""
    return read_data(_Hypotheses, "hypotheses.toml").hypothesis


@cache
def symptoms() -> Mapping[int, Symptom]:
    """By the number of the row."""
    return {int(number): row for number, row in read_data(_Symptoms, "symptoms.toml").row.items()}


@cache
def experiments() -> Mapping[str, Experiment]:
    """By id."""
    return read_data(_Experiments, "experiments.toml").experiment


def rows_of(*, rule: str | None = None, guard: str | None = None) -> tuple[int, ...]:
    """Rows that a rule of endpoints, or a guard, sees."""
    return tuple(
        number for number, row in symptoms().items() if (rule and rule in row.rules) or (guard and guard in row.guards)
    )


def proven_by(rule: str) -> tuple[str, ...]:
    """Hypotheses that a rule proves: first those whose rules begin with it, then the more usual ones."""
    found = [(one.rules.index(rule), -one.prior, name) for name, one in hypotheses().items() if rule in one.rules]
    return tuple(name for _, _, name in sorted(found))


def can_explain(causes: Sequence[str], rows: Sequence[int]) -> bool:
    """Whether one of the hypotheses is in one of the rows."""
    return any(cause in symptoms()[number].causes for number in rows for cause in causes)

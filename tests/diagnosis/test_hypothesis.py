"""The table is whole: 38 rows, and every name in it exists."""

from __future__ import annotations

from pathlib import Path

from degarble.catalogue import pages
from degarble.diagnosis.hypothesis import can_explain, experiments, hypotheses, proven_by, rows_of, symptoms

NEEDS = {"target", "reference", "endpoint", "trace", "bundle", "engine", "operator"}
GUARDS = Path(__file__).parents[2] / "src" / "degarble_engine" / "guards"


def test_the_rows_of_the_research_are_all_there() -> None:
    assert list(symptoms()) == list(range(1, 39))
    assert all(len(row.causes) == len(set(row.causes)) and row.causes and row.said for row in symptoms().values())


def test_every_rule_exists() -> None:
    known = set(pages())
    named = {rule for one in hypotheses().values() for rule in one.rules}
    named |= {rule for row in symptoms().values() for rule in row.rules}
    assert named <= known


def test_every_guard_exists() -> None:
    known = {path.stem.replace("_", "-") for path in GUARDS.glob("*.py")}
    assert {guard for row in symptoms().values() for guard in row.guards} <= known


def test_every_hypothesis_exists_is_named_and_can_be_told_apart() -> None:
    in_rows = {name for row in symptoms().values() for name in row.causes}
    in_answers = {name for one in experiments().values() for names in one.answers.values() for name in names}
    assert in_rows | in_answers <= set(hypotheses())
    assert set(hypotheses()) <= in_rows | {name for name, one in hypotheses().items() if one.rules}
    assert set(hypotheses()) == in_answers


def test_experiments_take_time_and_need_what_there_is() -> None:
    assert all(one.seconds > 0 and one.needs and set(one.needs) <= NEEDS for one in experiments().values())


def test_a_cause_explains_the_rows_that_name_it() -> None:
    assert 13 in rows_of(rule="RUN807") and 1 in rows_of(guard="non-finite-logits") and rows_of(rule="WGT201") == ()
    assert proven_by("KVC602")[0] == "slot-mapping"
    assert can_explain(("prefix-cache",), (13,)) and not can_explain(("client-font",), (13,))

"""Entropy of answers against sums by hand, and the order by bits a second."""

from __future__ import annotations

import math

import pytest

from degarble.diagnosis.experiment_plan import information, possible, ranked
from degarble.diagnosis.hypothesis import Experiment, experiments
from degarble.diagnosis.likelihood import Belief, Observation, beliefs


def experiment(seconds: float = 1.0, **answers: tuple[str, ...]) -> Experiment:
    return Experiment(title="t", command="c", seconds=seconds, needs=("target",), answers=answers)


def test_information_is_the_entropy_of_the_answer() -> None:
    masses = {"a": 0.5, "b": 0.25, "c": 0.25}
    assert information(experiment(yes=("a",)), masses) == pytest.approx(1.0)
    assert information(experiment(x=("a",), y=("b",), z=("c",)), masses) == pytest.approx(1.5)
    assert information(experiment(x=("a",), y=("a",)), {"a": 1.0}) == pytest.approx(1.0)  # either, as likely
    assert information(experiment(x=("a", "b", "c")), masses) == pytest.approx(0.0)
    assert information(experiment(x=("nobody",)), {}) == 0.0


def test_the_order_is_bits_a_second_and_what_was_done_is_left_out() -> None:
    known = beliefs([], {}, [Observation(what="seen", rows=(13,))])
    order = ranked(known)
    assert [one.rate for one in order] == sorted((one.rate for one in order), reverse=True)
    assert order[0].name not in {one.name for one in ranked(known, [order[0].name])}
    assert all(math.isfinite(one.bits) and one.bits > 0 for one in order)


def test_a_symptom_moves_its_experiment_forward() -> None:
    def place(row: int, name: str) -> int:
        known = beliefs([], {}, [Observation(what="seen", rows=(row,))])
        return [one.name for one in ranked(known)].index(name)

    assert place(18, "N") < place(1, "N") and place(33, "switch") < place(1, "switch")


def test_only_what_is_there_and_fits_the_time_is_possible() -> None:
    order = ranked(beliefs([], {}, []))
    found = possible(order, {"target", "reference", "endpoint"}, 30)
    assert {one.name for one in found} == {"check", "check-reference"}
    assert {one.name for one in possible(order, {"endpoint"}, 61)} == {"probe"}
    assert experiments()["probe"].seconds == 60


def test_nothing_to_tell_apart_means_no_experiment() -> None:
    assert ranked([Belief(name="adapter", log_odds=9.0, reasons=())]) == ()

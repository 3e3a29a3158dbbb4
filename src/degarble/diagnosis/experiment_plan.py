"""Which experiment comes next: the one that tells most for a second of its time, as far as the budget goes.

What an experiment tells is the entropy of its answer. Each hypothesis that is still possible says which answer it expects,
and has a share of belief; the answers' shares are p, and the information is -Σ p log2 p, in bits. An experiment that gives
the same answer under all of them tells nothing, however cheap it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec

from degarble.diagnosis.hypothesis import Experiment, experiments
from degarble.diagnosis.likelihood import Belief

POSSIBLE = 1e-3
"""Beliefs below take no part."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment, and what it would tell now."""

    name: str
    experiment: Experiment
    bits: float

    @property
    def rate(self) -> float:
        """Bits a second."""
        return self.bits / self.experiment.seconds


def ranked(known: Sequence[Belief], done: Collection[str] = ()) -> tuple[Choice, ...]:
    """All experiments that tell something and were not made yet, the best first."""
    masses = {one.name: one.probability for one in known if one.probability >= POSSIBLE}
    found = [
        Choice(name=name, experiment=one, bits=bits)
        for name, one in experiments().items()
        if name not in done and (bits := information(one, masses)) > 1e-9
    ]
    return tuple(sorted(found, key=lambda one: (-one.rate, one.name)))


def possible(choices: Sequence[Choice], available: Collection[str], seconds: float) -> tuple[Choice, ...]:
    """Those whose needs are all met and that fit into the time that is left."""
    return tuple(
        one for one in choices if set(one.experiment.needs) <= set(available) and one.experiment.seconds <= seconds
    )


def information(experiment: Experiment, masses: dict[str, float]) -> float:
    """Entropy of the answer, in bits. A hypothesis under several answers expects each of them equally."""
    whole = sum(masses.values())
    if whole <= 0:
        return 0.0
    expected: dict[str, list[str]] = {}
    for answer, names in experiment.answers.items():
        for name in names:
            expected.setdefault(name, []).append(answer)
    shares: dict[str, float] = {}
    for name, mass in masses.items():
        answers = expected.get(name, ["something else"])
        for answer in answers:
            shares[answer] = shares.get(answer, 0.0) + mass / whole / len(answers)
    return -sum(share * math.log2(share) for share in shares.values() if share > 0)

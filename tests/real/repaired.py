"""A fault planted in the real model, `degarble fix`, and what transformers answers before and after."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from degarble.fixes.reference import is_equal_tensor
from degarble.injection import inject
from degarble.repairing.fix import Outcome, fix
from degarble.target import open_target
from tests.fixes.planted import tensors_of
from tests.real.answers import answer
from tests.real.conftest import model_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One fault, and what a person would give `fix`."""

    form: str
    """One of `tests.real.conftest.NAMES`."""
    fault: str
    with_reference: bool = False
    unsafe: bool = False

    def __str__(self) -> str:
        return f"{self.form}-{self.fault}"

    @property
    def flags(self) -> str:
        """As on the command line."""
        return " ".join(["--reference HEALTHY"] * self.with_reference + ["--unsafe"] * self.unsafe)


CASES = (
    Case(form="gptq", fault="zero-points-low-everywhere", unsafe=True),
    Case(form="compressed-tensors", fault="pack-order-everywhere", unsafe=True),
    Case(form="bf16", fault="row-pairs-interleaved", unsafe=True),
    Case(form="bf16", fault="norm-weights-implausible", with_reference=True),
    Case(form="bf16", fault="decoder-missing"),
    Case(form="bf16", fault="eos-id-invalid"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was measured for one case."""

    case: Case
    healthy: str
    sick: str
    fixed: str
    outcome: Outcome
    other_tensors: tuple[str, ...]
    """Names of repaired tensors that are not bit for bit the healthy ones."""


@cache
def healthy_answer(form: str) -> str:
    """Measured once."""
    return answer(model_path(form))


def prove(case: Case) -> Proof:
    """Plant, ask, repair, ask again; the folders are removed."""
    healthy = model_path(case.form)
    work = Path(tempfile.mkdtemp(dir=healthy.parent, prefix="repaired."))
    try:
        inject(case.fault, healthy, work / "sick")
        reference = healthy if case.with_reference else None
        outcome = fix(work / "sick", work / "fixed", reference=reference, unsafe=case.unsafe)
        return Proof(
            case=case,
            healthy=healthy_answer(case.form),
            sick=answer(work / "sick"),
            fixed=answer(work / "fixed"),
            outcome=outcome,
            other_tensors=_other_tensors(work / "fixed", healthy),
        )
    finally:
        shutil.rmtree(work)


def _other_tensors(fixed: Path, healthy: Path) -> tuple[str, ...]:
    one, other = open_target(fixed), open_target(healthy)
    mine, theirs = tensors_of(one), tensors_of(other)
    shared = mine.keys() & theirs.keys()
    unequal = {name for name in shared if not is_equal_tensor(one, mine[name], other, theirs[name])}
    return tuple(sorted(unequal | (mine.keys() ^ theirs.keys())))

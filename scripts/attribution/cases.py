"""The runs of the attribution table: which base, what is planted, what `compare` said; one JSON line each, kept."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from scripts.attribution.faults import FAULTS, HIDDEN, possible
from scripts.attribution.job import Expected, Job

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.finding import Location, Severity
from degarble.report.interface import Report
from degarble.target import open_target
from degarble_engine.comparison import Question, compare_models
from degarble_engine.numerics.tokens import built_in_texts
from degarble_engine.numerics.walked_model import WalkedModel

TEXTS = tuple(text[:190] for text in built_in_texts()[:2])
REFERENCE = "bases/smooth"
UNKNOWN = "unknown"
BASES = {
    "unquantised": REFERENCE,
    "INT4 asymmetric g64": "forms/smooth-gptq-4b-g64-asymmetric",
    "INT4 compensated (GPTQ)": "forms/smooth-gptq-4b-g64-asymmetric-gptq",
    "FP8 block": "forms/smooth-fp8-block",
    "unknown scheme": UNKNOWN,
    "AWQ fold + INT4": "forms/folded-awq-4b-g64-asymmetric-mse",
}
TRIPLES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run: a base, and what is planted in it."""

    base: str
    faults: tuple[str, ...]

    @property
    def key(self) -> str:
        """Equal for equal runs."""
        return f"{self.base} | {' + '.join(self.faults)}"


def cases(num_faults: int) -> Iterator[Case]:
    """For every base its hidden faults, others by chance up to `num_faults`, and draws of three; bases take turns."""
    yield from (one for turn in zip_longest(*(_of_base(base, num_faults) for base in BASES)) for one in turn if one)


def _of_base(base: str, num_faults: int) -> list[Case]:
    rng = random.Random(base)
    names = [name for name in FAULTS if possible(name, base)]
    hidden = [name for name in HIDDEN if name in names]
    others = [name for name in names if name not in hidden]
    rng.shuffle(others)
    singles = [(name,) for name in (*hidden, *others)[: max(num_faults, len(hidden))]]
    triples = [tuple(rng.sample(names, 3)) for _ in range(TRIPLES)]
    return [Case(base=base, faults=one) for one in (*singles, *triples)]


def unknown_scheme(reference: Path, form: Path) -> Workspace:
    """The reference with every linear as another format gives it back, stored as bf16: rounding without its scales."""
    work = Workspace(open_target(reference))
    by_name = Evidence(open_target(reference), Settings()).get("modules").by_canonical
    for name, module in Evidence(open_target(form), Settings()).get("modules").by_canonical.items():
        if module.form.is_quantized and module.kind == "linear":
            for tensor, array in by_name[name].replace(codes=module.dequantize()).items():
                work.set(tensor, array)
    return work


def candidate_of(healthy: Path, form: str) -> Workspace:
    """A fresh view of a base."""
    if form == UNKNOWN:
        return unknown_scheme(healthy / REFERENCE, healthy / "forms/smooth-mlx-4b-g64-asymmetric")
    return Workspace(open_target(healthy / form))


def report_of(work: Workspace, reference: WalkedModel) -> Report:
    """What `compare` says."""
    candidate = WalkedModel(Evidence(work.source(), Settings()))
    found: Report = compare_models(candidate, reference, Question(texts=TEXTS))
    return found


def meets(place: Location, wanted: dict[str, Any]) -> bool:
    """Whether a finding points there."""
    found = place.as_dict()
    return all(found.get(key) == value for key, value in wanted.items())


def judged(report: Report, expected: Expected) -> dict[str, Any]:
    """The first finding must meet a place, all findings together every place, and errors elsewhere are counted."""
    causes = [cause.finding for cause in report.causes]
    places = [place for finding in causes for place in finding.all_places]
    strangers = [
        one for one in causes
        if one.severity is Severity.ERROR and not any(meets(place, e) for e in expected for place in one.all_places)
    ]  # fmt: skip
    return {
        "first": bool(causes) and any(meets(place, one) for one in expected for place in causes[0].all_places),
        "all": all(any(meets(place, one) for place in places) for one in expected),
        "strangers": len(strangers),
        "said": [f"{one.rule} {one.severity} {one.message[:160]}" for one in causes[:4]],
    }


def run(case: Case, healthy: Path, reference: WalkedModel) -> dict[str, Any]:
    """Plant, compare, judge."""
    form = BASES[case.base]
    work, untouched = candidate_of(healthy, form), candidate_of(healthy, form)
    job = Job(work, Evidence(untouched.source(), Settings()), random.Random(case.key))
    expected = [place for name in case.faults for place in FAULTS[name](job)]
    start = time.monotonic()
    found = judged(report_of(work, reference), expected)
    return {"key": case.key, "base": case.base, "faults": list(case.faults), "expected": expected, **found,
            "seconds": round(time.monotonic() - start, 1), "commit": commit()}  # fmt: skip


def commit() -> str:
    """Of the code that ran."""
    folder = Path(__file__).parent
    found = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=folder, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def kept(record: Path) -> dict[str, dict[str, Any]]:
    """Runs made so far, the last of each; a line that a kill cut short is passed over and made again."""
    found = {}
    for line in record.read_text(encoding="utf-8").splitlines() if record.exists() else ():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        found[one["key"]] = one
    return found


def keep(record: Path, one: dict[str, Any]) -> None:
    """Add a line."""
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps(one) + "\n")

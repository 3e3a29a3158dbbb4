"""Plant every fault of the rules that judge by numbers in the real model, with several seeds, and count what is found."""

from __future__ import annotations

import json
import random
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.calibration.bases import HEALTHY, base
from scripts.calibration.forms import FORMS
from scripts.calibration.measuring import STATISTICAL
from tests.planting import healthy_evidence, healthy_report, patient_source, points_at

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.faults.interface import Fault, NotApplicable, Patient, faults

POWER = HEALTHY / "power"
WHOLE, SLICE = range(1), range(4)
"""Tries of a fault in the whole model, and in its first six layers."""
PATIENTS = {
    "layers-6-gptq-4b-g64-asymmetric": SLICE,
    "layers-6-compressed-4b-g64-symmetric-mse": SLICE,
    "layers-6-nvfp4": SLICE,
    "smooth-gptq-4b-g64-asymmetric": WHOLE,
}


def patients() -> Iterator[tuple[Path, range]]:
    """Quantised forms and the plain one, and how often a fault is planted in each."""
    yield from ((FORMS / name, seeds) for name, seeds in PATIENTS.items())
    yield base("layers-6"), SLICE


def power_all() -> None:
    """Plant what has not been planted, every fault once before any is planted again."""
    chosen = [fault for fault in faults() if fault.rule in STATISTICAL]
    for seed in SLICE:
        for path, seeds in patients():
            for fault in chosen if seed in seeds else ():
                _plant(fault, path, seed)


def _plant(fault: Fault, path: Path, seed: int) -> None:
    """One file a try; what does not apply is not tried with another seed."""
    names = [f"{path.name}--{fault.rule}-{fault.name.replace('/', '_')}-{number}.json" for number in (0, seed)]
    first, out = (POWER / name for name in names)
    if out.exists() or (seed and not json.loads(first.read_text())["found"]):
        return
    start = time.monotonic()
    found = planted(fault, path, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"fault": fault.name, "rule": fault.rule, "form": path.name, "found": found}))
    if found is not None:
        said = "first" if found["is_first"] else found["first"]
        print(f"{path.name} {fault.rule} {fault.name}: {said}, {time.monotonic() - start:.0f} s", flush=True)


def planted(fault: Fault, path: Path, seed: int) -> dict[str, Any] | None:
    """What the rules say about one planted fault; None where it does not apply."""
    workspace = Workspace(patient_source(path))
    rng = random.Random(zlib.crc32(f"{fault.name} {path.name} {seed}".encode()))
    try:
        place = fault.function(Patient(evidence=healthy_evidence(path), workspace=workspace, rng=rng))
    except NotApplicable:
        return None
    reference = healthy_evidence(path) if fault.needs_reference else None
    report = check_source(workspace.source(), fault.settings, reference)
    known = {finding.fingerprint for finding in healthy_report(path, fault.settings).findings}
    new = [cause.finding for cause in report.causes if cause.finding.fingerprint not in known]
    mine = [f for f in report.findings if f.rule == fault.rule and f.fingerprint not in known]
    return {
        "seed": seed,
        "place": place.name(),
        "is_first": bool(new) and new[0].rule == fault.rule and points_at(new[0], place),
        "is_found": bool(mine),
        "first": f"{new[0].rule} {new[0].message[:120]}" if new else "nothing",
        "others": sorted({f.rule for f in new if f.rule != fault.rule}),
    }


def all_planted() -> list[dict[str, Any]]:
    """All results that are kept."""
    return [json.loads(path.read_text()) for path in sorted(POWER.glob("*.json"))]

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
SEEDS = range(5)
PATIENTS = (
    "smooth-gptq-4b-g64-asymmetric",
    "smooth-compressed-4b-g64-symmetric-mse",
    "smooth-nvfp4",
    "smooth-fp8-block-ue8m0",
)


def patients() -> Iterator[Path]:
    """Four quantised forms and the plain one."""
    yield from (FORMS / name for name in PATIENTS)
    yield base("smooth")


def power_all() -> None:
    """Plant what has not been planted."""
    for path in patients():
        for fault in (one for one in faults() if one.rule in STATISTICAL):
            out = POWER / f"{path.name}--{fault.rule}-{fault.name.replace('/', '_')}.json"
            if out.exists():
                continue
            start = time.monotonic()
            found = [result for seed in SEEDS if (result := planted(fault, path, seed)) is not None]
            out.parent.mkdir(parents=True, exist_ok=True)
            entry = {
                "fault": fault.name,
                "summary": fault.summary,
                "rule": fault.rule,
                "form": path.name,
                "found": found,
            }
            out.write_text(json.dumps(entry))
            firsts = sum(one["is_first"] for one in found)
            print(
                f"{path.name} {fault.rule} {fault.name}: {firsts} of {len(found)}, {time.monotonic() - start:.0f} s",
                flush=True,
            )


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

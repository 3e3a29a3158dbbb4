"""Measure every healthy checkpoint: all statistics, and what the rules said. One JSON file each, kept."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.calibration.bases import BASES, HEALTHY, ROOT, base
from scripts.calibration.forms import FORMS
from scripts.calibration.statistic import statistics
from scripts.calibration.tools import TOOLS
from scripts.calibration.untrained import names
from tests.conftest import unpacked_golden

from degarble.evidence import Evidence, Settings
from degarble.finding import Severity
from degarble.registry import rules
from degarble.runner import run
from degarble.target import open_target

MEASURED = HEALTHY / "measured"
CACHE = HEALTHY / "profiles"
REAL = ROOT / ".work" / "real"
SCALED_TWICE = "autoawq-gemm-g128"
"""AutoAWQ 0.2.9 under transformers 5.24 multiplied columns by the square of what it divided the norms by: log of the column
is -2.00 times log of the norm, with a correlation of -1.000. Beside its source it is not healthy, and WGT227 says so."""
STATISTICAL = (*(f"WGT{number}" for number in range(204, 230)), "NUM301", "NUM303", "NUM308")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One healthy checkpoint."""

    group: str
    """own | tool | real | golden | random"""
    path: Path
    reference: Path | None = None

    @property
    def name(self) -> str:
        """Unique."""
        name = self.path.name if self.path.suffix != ".gguf" or self.group == "real" else self.path.parent.name
        return f"{self.group}/{name}"


def checkpoints() -> Iterator[Checkpoint]:
    """All that are there."""
    for folder in sorted(FORMS.iterdir()) if FORMS.exists() else ():
        is_random, is_turned = folder.name.startswith("random"), folder.name.startswith("rotated")
        source = base("bf16" if folder.name.startswith("bf16") else "smooth")
        yield Checkpoint("random" if is_random else "own", folder, None if is_random or is_turned else source)
    for folder in sorted(BASES.iterdir()):
        yield Checkpoint("random" if folder.name.startswith("random") else "own", folder)
    for folder in sorted(TOOLS.iterdir()) if TOOLS.exists() else ():
        if not folder.name.startswith("."):
            is_smoothed_itself = folder.name.startswith("gguf-py")
            yield Checkpoint("tool", _weights(folder), None if is_smoothed_itself else base("smooth"))
    for folder in sorted(REAL.iterdir()):
        if folder.name != "bf16" and not folder.name.endswith(".lock"):
            yield Checkpoint("real", folder, base("bf16"))
    yield from _golden()


def _weights(folder: Path) -> Path:
    """The GGUF file of a folder that has one, else the folder."""
    files = sorted(folder.glob("*.gguf"))
    return files[0] if files else folder


def _golden() -> Iterator[Checkpoint]:
    root = unpacked_golden()
    for entry in json.loads((root / "MANIFEST.json").read_text())["entries"]:
        if not entry["expect"]:
            healthy = entry.get("base")
            is_copy = healthy and entry["dir"] not in (healthy, SCALED_TWICE) and (root / healthy).is_dir()
            yield Checkpoint("golden", root / entry["dir"], root / healthy if is_copy else None)


def measure_all() -> None:
    """Measure what has not been measured."""
    for name in names():
        base(name)
    for one in checkpoints():
        out = MEASURED / f"{one.name.replace('/', '--')}.json"
        if out.exists():
            continue
        start = time.monotonic()
        found = measure(one)
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(found))
        partial.rename(out)
        said = [f"{one['rule']} {one['severity']}" for one in found["said"]]
        print(f"{one.name}: {time.monotonic() - start:.1f} s {' '.join(said)}", flush=True)


def measure(one: Checkpoint) -> dict[str, Any]:
    """Statistics and findings of one checkpoint."""
    settings = Settings(cache=str(CACHE))
    reference = Evidence(open_target(one.reference), settings) if one.reference else None
    evidence = Evidence(open_target(one.path), settings, reference)
    numbers = {
        each.key: [(v.kind, v.number, v.place) for v in each.measure(evidence) if math.isfinite(v.number)]
        for each in statistics()
    }
    results = run(evidence, list(rules().values()))
    said = [
        {"rule": f.rule, "severity": str(f.severity), "where": f.location.name(), "message": f.message}
        for result in results
        for f in result.findings
        if f.severity is not Severity.INFO
    ]
    skipped = {r.rule: r.reason for r in results if r.reason and r.rule in STATISTICAL}
    return {"name": one.name, "group": one.group, "numbers": numbers, "said": said, "not_judged": skipped}


def measured() -> list[dict[str, Any]]:
    """All results that are kept."""
    return [json.loads(path.read_text()) for path in sorted(MEASURED.glob("*.json"))]

"""A fault planted in one golden checkpoint, and the plan that repairs it; nothing is written to disk."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from degarble.checkpoint.interface import Source, TensorInfo
from degarble.checkpoint.rope import RopeSource
from degarble.checkpoint.workspace import Workspace
from degarble.errors import DegarbleError
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Fault, NotApplicable, Patient
from degarble.fixes.reference import is_equal_tensor
from degarble.repairing.plan import Plan, Planner
from degarble.repairing.verdict import known_places, places_of
from tests.conftest import unpacked_golden
from tests.family_patients import NAMES, family_patients
from tests.planting import healthy_evidence, healthy_report, patient_source, settings_of

TEXT_RULES = ("TOK", "TPL")
SICK = "moe-mixtral-llmc-w4a16-g64"


@dataclass(frozen=True)
class Planted:
    """A sick view of a healthy checkpoint."""

    fault: Fault
    path: Path
    sick: RopeSource

    @property
    def healthy(self) -> Source:
        """What it was made from."""
        return patient_source(self.path)


@cache
def planted(fault: Fault) -> Planted | None:
    """In the first golden checkpoint it applies to, in an order that the fault's name decides; None if in none."""
    for path in _folders(fault):
        workspace = Workspace(patient_source(path))
        seed = zlib.crc32(f"{fault.name} {path.name}".encode())
        try:
            fault.function(Patient(evidence=healthy_evidence(path), workspace=workspace, rng=random.Random(seed)))
        except NotApplicable:
            continue
        return Planted(fault, path, workspace.source())
    return None


def _folders(fault: Fault) -> list[Path]:
    """Golden checkpoints; for faults of text also small ones of other families, which take longer to read."""
    folders = sorted(path for path in unpacked_golden().iterdir() if path.is_dir() and path.name != SICK)
    random.Random(zlib.crc32(fault.name.encode())).shuffle(folders)
    if not fault.rule.startswith(TEXT_RULES):
        return folders
    names = sorted(NAMES, key=lambda name: not name.startswith("llama-2"))
    return folders + [family_patients() / name for name in names]


def planner(patient: Planted, source: Source, *, reference: bool, unsafe: bool) -> Planner:
    """As `degarble fix` would set it up; faults that only a reference shows always get one."""
    needed = reference or patient.fault.needs_reference
    healthy = patient.healthy if needed else None
    return Planner(source, settings_of(patient.fault), reference=healthy, unsafe=unsafe)


@cache
def planned(patient: Planted, *, reference: bool, unsafe: bool) -> Plan:
    """The plan for a planted fault, made once."""
    return planner(patient, patient.sick, reference=reference, unsafe=unsafe).plan()


def is_mended(patient: Planted, plan: Plan) -> bool:
    """Whether only causes are left that the healthy checkpoint has as well."""
    known = known_places(healthy_report(patient.path, settings_of(patient.fault)))
    causes = [cause.finding for cause in plan.after.causes]
    return plan.after.failure is None and all(places_of(one) <= known.get(one.rule, set()) for one in causes)


def steps_for(patient: Planted, plan: Plan) -> list[str]:
    """`safe` or `judged` for each step that was made for the planted rule or its symptoms."""
    known = {cause.finding.rule for cause in healthy_report(patient.path, settings_of(patient.fault)).causes}
    known.discard(patient.fault.rule)
    return ["safe" if step.is_safe else "judged" for step in plan.steps if step.finding.rule not in known]


def other_tensors(patient: Planted, plan: Plan) -> list[str]:
    """Tensors that are not, bit for bit, those of the healthy checkpoint."""
    fixed = plan.workspace.source()
    mine, theirs = tensors_of(fixed), tensors_of(patient.healthy)
    return sorted(
        name
        for name in mine.keys() | theirs.keys()
        if name not in mine
        or name not in theirs
        or not is_equal_tensor(fixed, mine[name], patient.healthy, theirs[name])
    )


def tensors_of(source: Source) -> dict[str, TensorInfo]:
    """By name; empty where no header can be read."""
    try:
        return dict(Evidence(source, Settings()).get("tensors"))
    except DegarbleError:
        return {}


def other_files(patient: Planted, plan: Plan) -> list[str]:
    """Small files that say something else than the healthy checkpoint's: JSON by value, others by bytes."""
    fixed = plan.workspace.source()
    names = {
        name for name in {*fixed.files(), *patient.healthy.files()} if not name.endswith((".safetensors", ".gguf"))
    }
    return sorted(name for name in names if _content(fixed, name) != _content(patient.healthy, name))


def _content(source: Source, name: str) -> object:
    if name not in source.files():
        return None
    raw = source.read(name)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return raw

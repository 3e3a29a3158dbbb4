"""Planting a fault on disk: a new folder with the fault and a `fault.json` that says what was done."""

from __future__ import annotations

import os
import random

import msgspec

from degarble.checkpoint.workspace import Workspace
from degarble.errors import UsageError
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Fault, NotApplicable, Patient, faults
from degarble.finding import Location
from degarble.target import open_target
from degarble.version import __version__


def find_fault(name: str) -> Fault:
    """A fault by its name, or the first one of a rule. Raises UsageError if there is none."""
    wanted = name.strip()
    for fault in faults():
        if fault.name == wanted.lower():
            return fault
    of_rule = [fault for fault in faults() if fault.rule == wanted.upper()]
    if not of_rule:
        raise UsageError(f"no fault is called {name!r}: `degarble inject --list` shows them")
    named_like_rule = sorted(of_rule, key=lambda fault: len(fault.name))
    return named_like_rule[0]


def plant(fault: Fault, workspace: Workspace, evidence: Evidence, seed: int) -> Location:
    """Plant in a workspace and leave the record. Raises UsageError where the fault does not apply."""
    patient = Patient(evidence=evidence, workspace=workspace, rng=random.Random(seed))
    try:
        place = fault.function(patient)
    except NotApplicable as reason:
        raise UsageError(f"{fault.name} cannot be planted in this checkpoint: {reason}") from None
    record = {
        "rule": fault.rule,
        "fault": fault.name,
        "summary": fault.summary,
        "seed": seed,
        "location": place.as_dict(),
        "degarble": __version__,
    }
    workspace.write("fault.json", msgspec.json.format(msgspec.json.encode(record), indent=2))
    return place


def inject(fault: str, target: str | os.PathLike[str], out: str | os.PathLike[str], *, seed: int = 0) -> Location:
    """Write a copy of `target` with one planted fault to the new folder `out`; returns where it is."""
    chosen = find_fault(fault)
    source = open_target(target)
    workspace = Workspace(source)
    place = plant(chosen, workspace, Evidence(source, Settings()), seed)
    workspace.save(out)
    return place

"""The two-minute demonstration: a healthy checkpoint, one planted fault, its name, its repair, and the proof."""

from __future__ import annotations

from importlib.resources import as_file, files

import msgspec

from degarble.api import check_source
from degarble.checkpoint.interface import Source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.finding import Location
from degarble.injection import find_fault, plant
from degarble.repairing.plan import Plan, Planner
from degarble.report.interface import Report
from degarble.target import open_target

DEFAULT_FAULT = "scale-missing"


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """What happened."""

    source: Source
    fault: str
    summary: str
    place: Location
    before: Report
    after: Report
    plan: Plan
    """The repair, with the healthy checkpoint as reference; `plan.after` is the proof."""

    @property
    def is_named(self) -> bool:
        """Whether the planted fault came out as the first cause."""
        return bool(self.after.causes) and self.after.causes[0].finding.rule == find_fault(self.fault).rule


def demonstrate(model: str | None = None, fault: str = DEFAULT_FAULT, seed: int = 0) -> Demonstration:
    """Check a healthy model, plant a fault in a view of it, check, repair, check again. Nothing is written to disk."""
    if model is not None:
        return _demonstrate(open_target(model), fault, seed)
    with as_file(files("degarble.data") / "demo") as folder:
        return _demonstrate(open_target(folder), fault, seed)


def _demonstrate(source: Source, fault: str, seed: int) -> Demonstration:
    chosen = find_fault(fault)
    workspace = Workspace(source)
    before = check_source(source)
    place = plant(chosen, workspace, Evidence(source, Settings()), seed)
    sick = workspace.source()
    return Demonstration(
        source=source,
        fault=chosen.name,
        summary=chosen.summary,
        place=place,
        before=before,
        after=check_source(sick),
        plan=Planner(sick, Settings(), reference=source).plan(),
    )

"""The report of a command that runs a model: what the rules found, beside what the walk measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from degarble.api import stored_formats
from degarble.registry import rules
from degarble.report.interface import Report, Target
from degarble.report.judged import judged_report
from degarble.runner import RuleResult
from degarble_engine.numerics.walked_model import WalkedModel


def target_of(model: WalkedModel) -> Target:
    """The checkpoint as a report names it."""
    source = model.evidence.get("source")
    return Target(path=source.path, kind=source.kind, formats=stored_formats(model.evidence))


def walked_report(
    model: WalkedModel, results: Sequence[RuleResult], unjudged: Mapping[str, str], comparison: Mapping[str, Any]
) -> Report:
    """Any rule may be a cause here."""
    report: Report = judged_report(target_of(model), results, rules(), unjudged=unjudged, comparison=comparison)
    return report


def read_raw(model: WalkedModel) -> dict[str, str]:
    """Modules that were read without a part of theirs, which is no judgement of the whole."""
    parts = model.weights.raw_read.items()
    return {name: f"stored without its {part}: read raw, as loaders do" for name, part in parts}

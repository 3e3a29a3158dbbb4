"""Both models layer by layer."""

from __future__ import annotations

from degarble.diagnosing.inputs import DiagnosisInputs
from degarble.errors import MissingExtra
from degarble.report.interface import Report

NAME = "walk"


def run(inputs: DiagnosisInputs) -> Report:
    """`degarble compare TARGET REFERENCE`. Raises MissingExtra, TargetError or UsageError."""
    try:
        from degarble_engine import comparison
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    report: Report = comparison.compare(str(inputs.target), str(inputs.reference))
    return report

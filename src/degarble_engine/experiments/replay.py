"""The incident's request once more, alone, on the same checkpoint: what is exchanged is the state of the server."""

from __future__ import annotations

from degarble.diagnosing.inputs import DiagnosisInputs
from degarble.errors import MissingExtra
from degarble.report.interface import Report, Target

NAME = "replay"


def run(inputs: DiagnosisInputs) -> Report:
    """A report without rules; what the replay gave is its comparison. Raises MissingExtra, TargetError."""
    try:
        from degarble_engine.telemetry.replayed_bundle import replay_bundle
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    found = replay_bundle(str(inputs.incident), str(inputs.target), inputs.evidence)
    return Report(target=Target(path=str(inputs.incident), kind="incident"), comparison=found.as_dict())

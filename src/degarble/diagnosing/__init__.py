"""From an incident to its causes: gather evidence, weigh it, repair a copy, and tell it."""

from degarble.diagnosing.diagnose import diagnose
from degarble.diagnosing.inputs import DiagnosisInputs

__all__ = ["DiagnosisInputs", "diagnose"]

"""From findings to causes."""

from degarble.diagnosis.causes import Cause, Diagnosis, diagnose

__all__ = ["Cause", "Diagnosis", "diagnose"]

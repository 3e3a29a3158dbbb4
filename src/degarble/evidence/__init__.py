"""The inputs of checks: named, lazy, read once, read-only."""

from degarble.evidence.store import Coverage, Evidence, Settings, provides

__all__ = ["Coverage", "Evidence", "Settings", "provides"]

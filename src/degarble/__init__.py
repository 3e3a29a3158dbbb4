"""degarble: find out why a quantised LLM talks garbage, and ship one that doesn't."""

from typing import TYPE_CHECKING

from degarble.version import __version__

if TYPE_CHECKING:
    from degarble.api import check
    from degarble.errors import DegarbleError, TargetError, UsageError
    from degarble.finding import Confidence, Finding, Location, Role, Severity
    from degarble.repairing.fix import fix, undo
    from degarble.report.interface import Report, Status

_HOMES = {
    "check": "degarble.api",
    "fix": "degarble.repairing.fix",
    "undo": "degarble.repairing.fix",
    "Report": "degarble.report.interface",
    "Status": "degarble.report.interface",
    "DegarbleError": "degarble.errors",
    "TargetError": "degarble.errors",
    "UsageError": "degarble.errors",
    "Finding": "degarble.finding",
    "Location": "degarble.finding",
    "Severity": "degarble.finding",
    "Confidence": "degarble.finding",
    "Role": "degarble.finding",
}


def __getattr__(name: str) -> object:
    """Public names load their module on first use, so that `import degarble` costs nothing."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'degarble' has no attribute {name!r}")


__all__ = [
    "Confidence",
    "DegarbleError",
    "Finding",
    "Location",
    "Report",
    "Role",
    "Severity",
    "Status",
    "TargetError",
    "UsageError",
    "__version__",
    "check",
    "fix",
    "undo",
]

"""What somebody has at three in the morning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx
import msgspec

from degarble.errors import UsageError
from degarble.evidence import Evidence
from degarble.probe.connection import Limits
from degarble.report.interface import Report

DEFAULT_BUDGET = 300.0


class DiagnosisInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Any of these; at least one of the first five."""

    target: str | None = None
    """A checkpoint as `check` takes it."""
    endpoint: str | None = None
    trace: tuple[str, ...] = ()
    incident: str | None = None
    """Folder that a guard of `degarble serve` left behind."""
    symptom: str | None = None
    reference: str | None = None
    """A healthy copy of the target."""
    reference_endpoint: str | None = None
    budget_seconds: float = DEFAULT_BUDGET
    model: str | None = None
    """Name to ask the endpoint for."""
    api_key: str | None = None
    engine: str | None = None
    """NAME[@VERSION], where the endpoint does not tell it."""
    seed: int = 0
    redact: bool = False
    transport: httpx.BaseTransport | None = None
    """Answers instead of the network; for recordings and tests."""
    limits: Limits | None = None
    """Of the questions to an endpoint; by the budget where it is None."""
    reference_transport: httpx.BaseTransport | None = None
    evidence: Evidence | None = None
    """The target where it is opened already, or is a view of one."""
    joined: Mapping[str, Callable[[DiagnosisInputs], Report]] = {}
    """Experiments that run models, by name: what installed packages add."""

    def require_any(self) -> None:
        """Raises UsageError where there is nothing to start from."""
        if not (self.target or self.endpoint or self.trace or self.incident or self.symptom or self.evidence):
            raise UsageError(
                "nothing to start from: give a TARGET, --endpoint URL, --trace FILE, --incident DIR or --symptom TEXT"
            )

    def available(self) -> frozenset[str]:
        """What experiments may need."""
        found = {
            "target": self.target or self.evidence,
            "reference": self.reference,
            "endpoint": self.endpoint,
            "trace": self.trace,
            "bundle": self.incident,
            "engine": self.joined,
        }
        return frozenset(name for name, there in found.items() if there)

"""Evidence from a live endpoint: what `degarble probe` asked and was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides

if TYPE_CHECKING:
    from degarble.probe.probe_run import ProbeRun


@provides("probe_run")
def probe_run() -> ProbeRun:
    """Only a command that asks an endpoint has it."""
    raise EvidenceMissing("needs a live endpoint: degarble probe URL")

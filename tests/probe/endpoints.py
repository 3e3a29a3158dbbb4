"""The stand-in endpoint asked without waiting, as every test here does."""

from __future__ import annotations

from degarble.endpoint import probe
from degarble.endpoint_faults.fake_endpoint import FakeEndpoint, expected_counts
from degarble.probe.connection import Limits
from degarble.probe.probe_run import Expected
from degarble.report.interface import Report

URL = "http://stand-in.invalid:8000/v1"
EXPECTED = Expected(counts=expected_counts())
LIMITS = Limits(interval_seconds=0.0, budget_seconds=600.0)


def report_on(endpoint: FakeEndpoint, *, reference: FakeEndpoint | None = None, redact: bool = False) -> Report:
    """Everything that `degarble probe` does, with the stand-in in place of the network."""
    return probe(
        URL,
        expected=EXPECTED,
        limits=LIMITS,
        redact=redact,
        transport=endpoint.transport(),
        reference=None if reference is None else "http://reference.invalid",
        reference_transport=None if reference is None else reference.transport(),
    )

"""Fixtures shared by all tests."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")  # how fast a machine is at the moment is no finding

ARCHIVE = Path(__file__).parent / "golden.tar.xz"

NOT_HERE = "not on this machine: "
"""Begins the reason of a skip for want of a tool; such skips are named at the end of every run."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say by name what could not be run, so that nobody takes it for passed."""
    reasons = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()))
    for reason, number in reasons.items():
        if NOT_HERE in reason:
            terminalreporter.write_line(f"NOT RUN ({number} tests): {reason.removeprefix('Skipped: ')}", yellow=True)


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder with small healthy checkpoints made by the field's own tools, and their own dequantised values."""
    return unpacked_golden()


@cache
def unpacked_golden() -> Path:
    """Unpack the archive once per machine and content; safe under parallel test workers."""
    digest = hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"degarble-golden-{digest}"
    if not target.is_dir():
        partial = Path(tempfile.mkdtemp(prefix="degarble-golden."))
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(partial, filter="data")
        try:
            partial.rename(target)
        except OSError:  # another worker was first
            pass
    return target

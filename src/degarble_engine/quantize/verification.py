"""Proof of what was written: read again by our readers, equal bit for bit, and without a fault that the source lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from degarble.api import check_source
from degarble.checkpoint.folder import LocalFolder
from degarble.checkpoint.interface import Source
from degarble.checkpoint.tensor_data import Array
from degarble.errors import TargetError
from degarble.evidence import Evidence, Settings
from degarble.finding import Confidence, Severity
from degarble.profile.code_groups import values_of
from degarble.registry import Level
from degarble.report.interface import Report
from degarble_engine.quantize.layer_file import MatrixRecord


def digest_of(values: Array) -> str:
    """Of fp32 values."""
    return hashlib.sha256(np.ascontiguousarray(values, np.float32).tobytes()).hexdigest()


def prove_values(folder: Path, records: Sequence[MatrixRecord]) -> None:
    """Raises TargetError at the first matrix whose values are not what the method chose."""
    modules = Evidence(LocalFolder(folder), Settings()).get("modules")
    for record in records:
        module = modules.get(record.module)
        if module is None or not module.form.is_quantized or module.form.missing:
            raise TargetError(f"{record.module}: written, and not found again")
        if digest_of(values_of(module)) != record.digest:
            raise TargetError(f"{record.module}: read back, it has other values than were chosen: not written")


def judged(folder: Path, source: Source) -> Report:
    """`check` of the result. Raises TargetError for a proven error that the source does not have as well.

    What is only likely stays in the report: statistics know the codes of other quantisers, and every value was read back
    and is what was chosen.
    """
    settings = Settings(level=Level.CONTENT)
    report = check_source(LocalFolder(folder), settings)
    if report.failure is not None:
        raise TargetError(f"the result cannot be checked: {report.failure}")
    errors = {
        finding.rule: finding
        for finding in report.findings
        if finding.severity is Severity.ERROR and finding.confidence is Confidence.PROVEN
    }
    if errors:
        before = {finding.rule for finding in check_source(source, settings).findings}
        for rule, finding in errors.items():
            if rule not in before:
                raise TargetError(f"the result fails {rule}: {finding.message}")
    return report

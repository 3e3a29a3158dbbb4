"""The machine form of what `degarble fix` did: the record's steps and refusals, and the report on the result."""

from __future__ import annotations

from typing import Any

import msgspec

from degarble.repairing.fix import Outcome
from degarble.repairing.record import SCHEMA_VERSION, printable, refused_record, step_record
from degarble.report.json import document as report_document
from degarble.version import __version__


def document(outcome: Outcome, fail_on: str) -> dict[str, Any]:
    """One JSON object. `--replay` takes it as a plan."""
    plan = outcome.plan
    words = {0: "repaired", 1: "partly repaired", 2: "not repaired"}
    found: dict[str, Any] = msgspec.to_builtins(
        {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "degarble", "version": __version__},
            "target": plan.before.target.path,
            "out": outcome.out,
            "status": words[outcome.exit_code(fail_on)],
            "causes_before": [cause.finding.rule for cause in plan.before.causes],
            "causes_after": [cause.finding.rule for cause in plan.after.causes],
            "changed": list(outcome.changed),
            "steps": [step_record(step) for step in plan.steps],
            "refused": [refused_record(one) for one in plan.refused],
        }
    )
    return {**printable(found), "after": report_document(plan.after)}

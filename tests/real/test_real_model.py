"""SmolLM2-135M-Instruct in six forms: silent when healthy, and every header-level fault found first."""

from __future__ import annotations

import pytest

from degarble.faults.interface import Fault, faults
from degarble.registry import Level, rules
from tests.planting import assert_first_cause, healthy_report
from tests.real.conftest import NAMES, model_path

pytestmark = pytest.mark.real
HEADER_FAULTS = [fault for fault in faults() if rules()[fault.rule].level not in (Level.CONTENT, Level.FORWARD)]
FORMS_OF = {"TOK": ("bf16", "gguf"), "TPL": ("bf16", "gguf"), "WGT": ("bf16", "gptq")}
"""The other forms carry the very files of text that bf16 carries; values beside a reference take seconds a fault."""
PAIRS = [
    pytest.param(fault, name, id=f"{fault.rule}-{fault.name}-{name}")
    for fault in HEADER_FAULTS
    for name in FORMS_OF.get(fault.rule[:3], NAMES)
]


@pytest.mark.parametrize("name", NAMES)
def test_healthy_model_has_no_findings(name: str) -> None:
    report = healthy_report(model_path(name))
    found = [f"{f.rule} at {f.location.name()}: {f.message}" for f in report.findings if f.severity != "info"]
    assert (report.status, found) == ("ok", [])


@pytest.mark.parametrize(("fault", "name"), PAIRS)
def test_fault_is_the_first_cause(fault: Fault, name: str) -> None:
    assert_first_cause(fault, model_path(name))

"""QNT112: which orders matter without groups, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.finding import Severity
from tests.checks.quantization.judging import judge, quantization


@pytest.mark.parametrize(
    ("order", "version", "severity"),
    [
        ("static", "0.19.0", Severity.WARNING),
        ("weight", "0.17.1", Severity.WARNING),
        ("static", "0.17.0", Severity.ERROR),
        ("static", None, Severity.ERROR),
        ("static", "nonsense", Severity.ERROR),
        ("group", "0.19.0", Severity.ERROR),
        (True, "0.19.0", Severity.ERROR),
        (False, "0.19.0", None),
        (None, "0.19.0", None),
        (7, "0.19.0", None),
    ],
)
def test_order_in_a_channel_scheme(golden: Path, order: object, version: str | None, severity: Severity | None) -> None:
    """An idle order is tolerated by new tools; one that promises a stored index is not."""

    def edit(workspace):
        config = quantization(workspace)
        config["version"] = version
        config["config_groups"]["group_0"]["weights"]["actorder"] = order

    found = judge("QNT112", golden / "llm-compressor-w8a8-int8", edit)
    assert [finding.severity for finding in found] == ([severity] if severity else [])


def test_group_schemes_are_silent(golden: Path) -> None:
    """Here an order has groups to order."""
    assert judge("QNT112", golden / "llm-compressor-w4a16-gptq-actorder-weight-g64") == []


def test_gptq_without_groups_is_silent(golden: Path) -> None:
    """`desc_act` with group size -1 is legal and another key."""
    found = judge(
        "QNT112", golden / "gptqmodel-gptq-sym-g128", lambda w: quantization(w).update(desc_act=True, group_size=-1)
    )
    assert found == []

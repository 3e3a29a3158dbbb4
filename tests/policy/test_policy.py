"""What a team decided about findings, on a real checkpoint with a planted fault."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.errors import UsageError
from degarble.finding import Severity
from degarble.policy.baseline import read_baseline, write_baseline
from degarble.policy.policy import Policy, Range, WaiverState
from degarble.policy.waivers import Waiver, read_waivers
from degarble.report.interface import Report, Status
from degarble.target import open_target

TENSOR = "model.layers.0.mlp.up_proj.weight"


def check_with(golden: Path, policy: Policy) -> Report:
    """`base-bf16` with a NaN in one weight and a zero matrix."""
    work = Workspace(open_target(golden / "base-bf16"))
    shape = work.holder(TENSOR).tensors[TENSOR].shape
    work.set(TENSOR, np.zeros(shape, np.float32))
    return check_source(work.source(), policy=policy)


def test_without_a_policy_the_fault_counts(golden: Path) -> None:
    report = check_with(golden, Policy())
    assert (report.status, report.exit_code(), report.accepted) == (Status.FINDINGS, 1, ())
    assert report.causes[0].finding.rule == "WGT204"


def test_a_waiver_in_scope_takes_the_finding_out(golden: Path) -> None:
    rules = {one.rule for one in check_with(golden, Policy()).findings if one.severity is not Severity.INFO}
    waivers = tuple(Waiver(rule=rule, scope="*layers.0.mlp.up_proj*", reason="known") for rule in sorted(rules))
    report = check_with(golden, Policy(waivers=waivers))
    assert {finding.severity for finding in report.findings} <= {Severity.INFO} and report.exit_code() == 0
    assert {finding.accepted.reason for finding in report.accepted if finding.accepted} == {"known"}
    assert {state for _, state in report.waivers} == {WaiverState.USED}


@pytest.mark.parametrize(
    ("scope", "expires", "state"),
    [("*layers.1*", None, WaiverState.UNUSED), ("*", date(2026, 1, 1), WaiverState.EXPIRED)],
)
def test_a_waiver_that_does_not_apply_is_reported(
    golden: Path, scope: str, expires: date | None, state: WaiverState
) -> None:
    waiver = Waiver(rule="WGT204", scope=scope, reason="why", expires=expires)
    report = check_with(golden, Policy(waivers=(waiver,), today=date(2026, 6, 1)))
    assert report.exit_code() == 1
    assert report.waivers == ((waiver, state),)


def test_a_waiver_holds_on_its_last_day() -> None:
    waiver = Waiver(rule="WGT204", scope="*", reason="why", expires=date(2026, 1, 1))
    assert [waiver.is_expired(date(2026, 1, day)) for day in (1, 2)] == [False, True]


def test_a_baseline_takes_out_what_was_there_and_nothing_else(golden: Path, tmp_path: Path) -> None:
    before = check_with(golden, Policy())
    written = write_baseline(tmp_path / "baseline.json", before.findings)
    assert written == sum(len(finding.all_places) for finding in before.findings)
    after = check_with(golden, Policy(baseline=read_baseline(tmp_path / "baseline.json")))
    assert after.findings == () and len(after.accepted) == len(before.findings)
    other = check_with(golden, Policy(baseline=frozenset({"0" * 16})))
    assert len(other.findings) == len(before.findings)


def test_severity_and_accepted_numbers(golden: Path) -> None:
    lowered = check_with(golden, Policy(severities={"WGT204": Severity.INFO}))
    assert all(finding.severity is Severity.INFO for finding in lowered.findings if finding.rule == "WGT204")
    finding = next(one for one in check_with(golden, Policy()).findings if one.rule == "WGT204")
    name, value = next((k, v) for k, v in finding.measured.items() if isinstance(v, int | float))
    inside = check_with(golden, Policy(accepts={"WGT204": {name: Range(max=float(value))}}))
    outside = check_with(golden, Policy(accepts={"WGT204": {name: Range(min=float(value) + 1)}}))
    assert not [one for one in inside.findings if one.rule == "WGT204"]
    assert [one for one in outside.findings if one.rule == "WGT204"]


@pytest.mark.parametrize(
    "text",
    [
        '[[waiver]]\nrule = "WGT204"\nscope = "*"\n',
        '[[waiver]]\nrule = "WGT204"\nscope = "*"\nreason = "  "\n',
        '[[waiver]]\nrule = "WGT999"\nscope = "*"\nreason = "x"\n',
        '[[waiver]]\nrule = "WGT204"\nscope = "*"\nreason = "x"\nuntil = 2026-01-01\n',
        '[[waiver]]\nrule = "WGT204"\nscope = "*"\nreason = "x"\nexpires = "soon"\n',
        "waiver = 3\n",
        "[waivers]\n",
        "not toml",
    ],
)
def test_a_broken_waiver_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"waivers\.toml"):
        read_waivers(path, ["WGT204"])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"baseline_version": 9, "findings": []}', "[" * 100_000])
def test_a_broken_baseline_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="baseline"):
        read_baseline(path)

"""Logs of kv-canary: each violation at its line, and no word of health where nothing says that the canary ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.api import trace
from degarble.report.interface import Report, Status
from degarble.runner import Outcome
from tests.trace_readers.recordings import CANARY_HEAD, canary_violation


def judged(tmp_path: Path, text: str) -> Report:
    path = tmp_path / "server.log"
    path.write_text(text)
    report = trace([path])
    assert report.summary["crashed"] == 0
    return report


def passed(report: Report) -> set[str]:
    return {result.rule for result in report.results if result.outcome is Outcome.OK}


def test_a_canary_that_found_nothing(tmp_path: Path) -> None:
    report = judged(tmp_path, CANARY_HEAD)
    assert report.findings == () and report.status is Status.PARTIAL
    assert passed(report) == {"KVC606", "KVC618", "KVC623"}


@pytest.mark.parametrize(
    ("head", "rules", "why"),
    [
        (CANARY_HEAD.replace("'all'", "'none'"), {"KVC606", "KVC623"}, "KVC618"),
        (CANARY_HEAD.splitlines()[0] + "\n", {"KVC623"}, "whether the canary ran"),
        (CANARY_HEAD.replace("protected_tokens=51200", "protected_tokens=0"), {"KVC623"}, "whether the canary ran"),
    ],
)
def test_what_nobody_verified_is_not_judged(head: str, rules: set[str], why: str, tmp_path: Path) -> None:
    report = judged(tmp_path, head)
    assert passed(report) == rules and why in report.unjudged


@pytest.mark.parametrize(
    ("reasons", "rule", "said"),
    [
        ("chain_hash", "KVC606", "what was written before it is another text"),
        (
            "chain_hash+position+verify_token",
            "KVC606",
            "another token than its request has there (also chain_hash, position)",
        ),
        ("real_kv_hash", "KVC618", "its bytes are not those that were written"),
        ("write_position", "KVC607", "another position"),
        ("write_token", "KVC606", "written with another token"),
    ],
)
def test_violations(reasons: str, rule: str, said: str, tmp_path: Path) -> None:
    (found,) = judged(tmp_path, CANARY_HEAD + canary_violation(reasons)).findings
    assert (found.rule, found.location.line, found.location.slot, found.location.position) == (rule, 2, 4711, 255)
    assert said in found.message and "HEAD_K_FULL" in found.message
    assert (found.measured == {"token_id": 318}) == ("_token" in reasons)


def test_one_slot_is_told_once_and_every_slot_is_told(tmp_path: Path) -> None:
    text = CANARY_HEAD + canary_violation("chain_hash") * 3 + canary_violation("chain_hash", slot=9)
    report = judged(tmp_path, text)
    assert [finding.location.slot for finding in report.findings] == [4711, 9]
    assert "2 more of this rule follow" in report.findings[0].message


def test_a_canary_that_does_not_run_is_a_fault(tmp_path: Path) -> None:
    error = (
        "RuntimeError: kv-canary: kernel_run_counter is zero after warmup for tags=[TAIL_V_SWA] at step=200; canary path is not "
        "executing\n"
    )
    (found,) = judged(tmp_path, error).findings
    assert found.rule == "KVC623" and "TAIL_V_SWA do not run" in found.message


def test_a_ring_that_overflowed_hides_violations(tmp_path: Path) -> None:
    text = canary_violation("chain_hash").replace(
        "total_violations=1 ring_overflow=False", "total_violations=90 ring_overflow=True"
    )
    assert judged(tmp_path, CANARY_HEAD + text).unjudged["violations that are not in the log"] == "89"


def test_older_forms(tmp_path: Path) -> None:
    line = (
        "ERROR kv-canary violation: kind=head_k kernel_kind=0 fail_reason=HASH slot_idx=77 req_id=3 token_id=5 position=31 "
        "expected_hash=0x1 actual_hash=0x2 (total violations recorded: 1)\n"
    )
    (found,) = judged(tmp_path, line).findings
    assert (found.rule, found.location.slot, found.location.position, found.location.request) == ("KVC606", 77, 31, "3")
    block = (
        "kv-canary violation:\n  canary_kind:       tail_v\n  fail_reason:       REAL_KV_HASH (bytes)\n  slot_idx:          12\n"
        "  position:          expected=9 actual=8\nnext line\n"
    )
    (found,) = judged(tmp_path, block).findings
    assert (found.rule, found.location.line, found.location.slot) == ("KVC618", 0, 12)


def test_a_reason_of_a_later_version_is_no_silence(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, CANARY_HEAD + canary_violation("quantum_state")).findings
    assert found.rule == "KVC623" and "quantum_state" in found.message

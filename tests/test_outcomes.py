"""Status and exit code for every way a check can end: DESIGN's table, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from degarble import api
from degarble.cli.app import run
from degarble.errors import EvidenceMissing, EvidenceUnjudged
from degarble.finding import Confidence, Finding, Location, Severity
from degarble.registry import Check, Level, Rule, needs_of
from degarble.report.interface import Report
from degarble.report.json import document


def rule(identity: str, function: object, **facts: object) -> Rule:
    """A rule around one function."""
    check = Check(
        rule=identity,
        name="made-up",
        function=function,  # type: ignore[arg-type]
        needs=needs_of(function),  # type: ignore[arg-type]
        severity=Severity.ERROR,
        confidence=Confidence.PROVEN,
        level=Level.HEADER,
        requires=(),
        symptom_of=(),
    )
    check = replace(check, **facts)
    return Rule(
        id=identity,
        name="made-up",
        summary="Made up.",
        page="Made up.",
        severity=check.severity,
        level=check.level,
        checks=(check,),
    )


def passes(source: object) -> Iterator[Finding]:
    """Runs and finds nothing."""
    yield from ()


def finds(source: object) -> Iterator[Finding]:
    """Finds one thing."""
    yield Finding(location=Location(file="config.json"), message="wrong")


def warns(source: object) -> Iterator[Finding]:
    """Warns."""
    yield Finding(location=Location(file="config.json"), message="odd", severity=Severity.WARNING)


def notes(source: object) -> Iterator[Finding]:
    """Says something."""
    yield Finding(location=Location(file="config.json"), message="by the way", severity=Severity.INFO)


def crashes(source: object) -> Iterator[Finding]:
    """Our bug."""
    raise ZeroDivisionError("boom")


def lacks_input(source: object) -> Iterator[Finding]:
    """An input the user did not give."""
    raise EvidenceMissing("no --reference given")


def cannot_judge(source: object) -> Iterator[Finding]:
    """An input that was given and is unknown."""
    raise EvidenceUnjudged("unknown weight format 'q9'")


def lacks_extra(source: object) -> Iterator[Finding]:
    """An optional package is missing."""
    raise ModuleNotFoundError("No module named 'sentencepiece'", name="sentencepiece")


@pytest.fixture
def report_of(monkeypatch: pytest.MonkeyPatch, golden: Path):  # type: ignore[no-untyped-def]
    """Check a healthy folder with made-up rules."""

    def check(*functions: object, **facts: object) -> Report:
        table = {f"CKP9{n:02d}": rule(f"CKP9{n:02d}", function, **facts) for n, function in enumerate(functions)}
        monkeypatch.setattr(api, "rules_on", lambda _=None: table)
        return api.check(golden / "base-bf16")

    return check


CASES = {
    "ok": ((passes,), "ok", 0),
    "finding": ((passes, finds), "findings", 1),
    "warning": ((passes, warns), "findings", 0),
    "info": ((passes, notes), "ok", 0),
    "crash": ((passes, crashes), "error", 2),
    "crash beside an error": ((finds, crashes), "findings", 1),
    "crash beside a warning": ((warns, crashes), "error", 2),
    "input not given": ((passes, lacks_input), "ok", 0),
    "cannot be judged": ((passes, cannot_judge), "partial", 0),
    "cannot be judged beside an error": ((finds, cannot_judge), "findings", 1),
    "missing extra": ((passes, lacks_extra), "partial", 0),
    "nothing could be checked": ((lacks_input,), "error", 2),
}


@pytest.mark.parametrize("case", CASES)
def test_status_and_exit_code(case: str, report_of) -> None:  # type: ignore[no-untyped-def]
    functions, status, code = CASES[case]
    report = report_of(*functions)
    assert (report.status, report.exit_code()) == (status, code)


@pytest.mark.parametrize(
    ("function", "codes"),
    [
        (passes, (0, 0, 0, 0)),
        (notes, (0, 0, 1, 0)),
        (warns, (0, 1, 1, 1)),
        (finds, (1, 1, 1, 1)),
        (cannot_judge, (0, 0, 0, 1)),
        (crashes, (2, 2, 2, 2)),
    ],
)
def test_fail_on(function: object, codes: tuple[int, ...], report_of) -> None:  # type: ignore[no-untyped-def]
    report = report_of(passes, function)
    assert tuple(report.exit_code(limit) for limit in ("error", "warning", "info", "partial")) == codes


def test_a_crash_names_rule_and_place(report_of) -> None:  # type: ignore[no-untyped-def]
    crashed = document(report_of(passes, crashes))["checks"][1]
    assert crashed["outcome"] == "crashed"
    assert "ZeroDivisionError: boom" in crashed["reason"]
    assert "test_outcomes.py" in crashed["reason"]


def test_a_missing_extra_says_how_to_get_it(report_of) -> None:  # type: ignore[no-untyped-def]
    report = report_of(passes, lacks_extra)
    assert any("degarble[sentencepiece]" in what for what in report.unjudged)


def test_content_checks_are_skipped_at_header_level(monkeypatch: pytest.MonkeyPatch, golden: Path) -> None:
    table = {"CKP900": rule("CKP900", passes), "CKP901": rule("CKP901", finds, level=Level.CONTENT)}
    monkeypatch.setattr(api, "rules_on", lambda _=None: table)
    report = api.check(golden / "base-bf16", level="header")
    assert report.status == "ok"
    assert document(report)["checks"][1]["reason"].startswith("reads tensor contents")


def test_requires_skips_only_after_a_failure(monkeypatch: pytest.MonkeyPatch, golden: Path) -> None:
    needing = rule("CKP901", passes, requires=("CKP900",))
    for first, outcome in ((finds, "skipped"), (warns, "ok"), (lacks_input, "ok")):
        monkeypatch.setattr(api, "rules_on", lambda _=None, f=first: {"CKP900": rule("CKP900", f), "CKP901": needing})
        assert document(api.check(golden / "base-bf16"))["checks"][1]["outcome"] == outcome


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "no/such/folder"], "no such file or folder"),
        (["check", "pyproject.toml"], "not a checkpoint"),
        (["check", "src"], "no weights, config or tokenizer"),
        (["check", ".", "--fail-on", "never"], "--fail-on"),
        (["check", ".", "--select", "XYZ"], "no rule is called"),
        (["check", ".", "--level", "deep"], "--level"),
        (["check"], "target"),
        (["check", ".", "--no-such-option"], "No such option"),
    ],
)
def test_usage_errors_are_status_2_and_one_document(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--format", "json"]) == 2
    shown = capsys.readouterr()
    value = json.loads(shown.out)
    assert value["status"] == "error"
    assert words.lower() in value["error"].lower()
    assert words.lower() in shown.err.lower()

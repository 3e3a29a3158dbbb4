"""JUnit XML: it fits the schema of Jenkins' reader, and errors alone fail."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from degarble.finding import Severity
from degarble.registry import rules_on
from degarble.report.interface import Report
from degarble.report.junit import MAX_FINDINGS, render
from degarble.runner import Outcome, RuleResult
from tests.report.samples import HOSTILE, broken, explained, finding, hostile, layered, many, report_of

SCHEMAS = Path(__file__).parents[1] / "cases" / "schemas"


@cache
def schema() -> Any:
    """The XML Schema."""
    return etree.XMLSchema(etree.parse(str(SCHEMAS / "junit-10.xsd")))


def suite_of(report: Report) -> Any:
    """The one suite, after validation."""
    root = etree.fromstring(render(report).encode())
    schema().assertValid(root)
    (suite,) = root
    assert int(suite.get("tests")) == len(suite.findall("testcase"))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(key)) == len(suite.findall(f"testcase/{tag}"))
    return suite


@pytest.mark.parametrize("name", ["base-bf16", "gptqmodel-gptq-sym-g128", "llama.cpp-q4_0", "llm-compressor-nvfp4"])
def test_golden_reports_fit_the_schema(name: str) -> None:
    report = broken(name, "module-missing", "rope-settings-lost")
    cases = suite_of(report).findall("testcase")
    assert [case.get("name").split()[0] for case in cases][: len(rules_on())] == sorted(rules_on())
    failed = {case.get("name").split()[0] for case in cases if case.find("failure") is not None}
    assert failed == {f.rule for f in report.findings if f.severity is Severity.ERROR}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_reports_fit_the_schema(case: str) -> None:
    suite = suite_of(hostile(HOSTILE[case]))
    assert suite.get("errors") == "1" and suite.find(".//script") is None


def test_errors_fail_and_warnings_are_output() -> None:
    suite = suite_of(layered())
    below, value = suite.findall("testcase")
    assert below.get("name") == "NUM301 norm-gain-unsafe-in-half" or below.get("name").startswith("NUM301 ")
    assert below.find("failure") is None
    assert below.findtext("system-out").startswith("warning ")
    failure = value.find("failure")
    assert failure.get("type") == "WGT206" and "median scale is 32 times" in failure.get("message")
    assert "measured: ratio 31.7; bound ratio_max 8" in failure.text and "repair: " in failure.text
    assert value.get("classname") == "degarble.WGT"


def test_a_symptom_names_its_cause() -> None:
    report = explained()
    (symptom,) = report.causes[0].symptoms
    text = "".join(suite_of(report).itertext())
    cause = report.causes[0].finding
    assert f"error {symptom.id} " in text and f"explained by: {cause.id} {cause.rule} {cause.name}" in text


def test_skips_crashes_failures_and_what_was_not_judged() -> None:
    results = (
        RuleResult(rule="CKP101", outcome=Outcome.OK),
        RuleResult(rule="CKP102", outcome=Outcome.SKIPPED, reason="no index"),
        RuleResult(rule="CKP103", outcome=Outcome.CRASHED, reason="KeyError: 'x'"),
    )
    suite = suite_of(report_of(results=results, unjudged={"a.bin": "a pickle"}))
    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["4", "0", "1", "2"]
    assert suite.find("testcase/error").get("message") == "KeyError: 'x'"
    assert [case.get("message") for case in suite.findall("testcase/skipped")] == ["no index", "a pickle"]
    failed = suite_of(report_of(failure="no such folder"))
    assert failed.get("errors") == "1" and failed.find("testcase/error").get("message") == "no such folder"


def test_a_finding_without_a_result_is_not_lost() -> None:
    suite = suite_of(report_of(finding("CKP101"), results=()))
    assert suite.get("failures") == "1"


def test_many_findings_of_a_rule_are_counted() -> None:
    failure = suite_of(many(MAX_FINDINGS + 7)).find("testcase/failure")
    assert "… and 7 more" in failure.text

"""SARIF 2.1.0: every log fits the official schema, and says what the report says."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from degarble.finding import Location, Severity
from degarble.registry import rules_on
from degarble.report.interface import Report, Target
from degarble.report.sarif import MAX_RESULTS, render
from degarble.runner import Outcome, RuleResult
from tests.report.samples import HOSTILE, broken, explained, finding, hostile, layered, many, report_of

SCHEMAS = Path(__file__).parents[1] / "cases" / "schemas"


@cache
def validator() -> Any:
    """Of the official schema."""
    return jsonschema.Draft4Validator(json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text()))


def run_of(report: Report) -> Any:
    """The one run of the log, after validation."""
    log = json.loads(render(report))
    validator().validate(log)
    assert log["version"] == "2.1.0" and len(log["runs"]) == 1
    return log["runs"][0]


def test_the_schema_refuses_what_is_wrong() -> None:
    log = json.loads(render(layered()))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not validator().is_valid(log)


@pytest.mark.parametrize("name", ["base-bf16", "gptqmodel-gptq-sym-g128", "llama.cpp-q4_0", "llm-compressor-nvfp4"])
def test_golden_reports_fit_the_schema(name: str) -> None:
    report = broken(name, "module-missing", "scale-not-finite")
    run = run_of(report)
    assert [result["ruleId"] for result in run["results"]] == [f.rule for f in report.findings]
    assert run["results"][0]["partialFingerprints"]["degarble/v1"] == report.findings[0].fingerprint


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_reports_fit_the_schema(case: str) -> None:
    run = run_of(hostile(HOSTILE[case]))
    uris = [place["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"] for place in r["locations"]]
    assert all(uri.isascii() and not set(uri) & set(' <>"{}|\\^`\n') for uri in uris)


def test_levels_places_and_symptoms() -> None:
    run = run_of(layered())
    value, below = run["results"]
    assert (value["level"], below["level"]) == ("error", "warning")
    place = value["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "models/tiny/model.safetensors"
    assert place["logicalLocations"] == [
        {"fullyQualifiedName": "model.layers.20.mlp.down_proj.scales", "kind": "tensor"},
        {"fullyQualifiedName": "model.layers.20.mlp.down_proj", "kind": "module"},
    ]
    assert place["properties"] == {"layer": 20}
    assert value["properties"]["measured"] == {"ratio": 31.7}
    rule = run["tool"]["driver"]["rules"][value["ruleIndex"]]
    assert rule["id"] == value["ruleId"] == "WGT206"
    assert "## How to repair it" in rule["help"]["markdown"] and "helpUri" not in rule


def test_a_cause_relates_its_symptoms() -> None:
    report = explained()
    cause = report.causes[0]
    result = run_of(report)["results"][0]
    assert result["properties"]["symptoms"] == [symptom.id for symptom in cause.symptoms][:64]
    texts = [place["message"]["text"] for place in result["relatedLocations"]]
    assert any(text.startswith(f"explains {cause.symptoms[0].id} {cause.symptoms[0].rule}") for text in texts)
    assert [place["id"] for place in result["relatedLocations"]] == list(range(1, len(texts) + 1))


def test_further_places_are_related() -> None:
    places = tuple(Location(file="a.safetensors", tensor=f"t{n}") for n in range(40))
    result = run_of(report_of(finding(location=places[0], places=places)))["results"][0]
    assert result["properties"]["count"] == 40
    names = [place["logicalLocations"][0]["fullyQualifiedName"] for place in result["relatedLocations"]]
    assert names == [f"t{n}" for n in range(1, 21)]


def test_an_info_is_a_note() -> None:
    run = run_of(report_of(finding("ENG701", severity=Severity.INFO)))
    assert run["results"][0]["level"] == "note"


@pytest.mark.parametrize(
    ("report", "is_successful", "words"),
    [
        (report_of(), True, None),
        (report_of(finding()), True, None),
        (report_of(failure="no such folder"), False, "no such folder"),
        (
            report_of(results=(RuleResult(rule="CKP101", outcome=Outcome.CRASHED, reason="KeyError: 'x'"),)),
            False,
            "CKP101 crashed: KeyError: 'x'",
        ),
    ],
)
def test_a_crash_or_failure_is_not_a_successful_execution(
    report: Report, is_successful: bool, words: str | None
) -> None:
    invocation = run_of(report)["invocations"][0]
    assert invocation["executionSuccessful"] is is_successful
    assert [note["message"]["text"] for note in invocation["toolExecutionNotifications"]] == [words] * (
        words is not None
    )


def test_skips_and_what_was_not_judged_are_notifications() -> None:
    skipped = RuleResult(rule="CFG109", outcome=Outcome.SKIPPED, reason="no --reference given")
    run = run_of(report_of(results=(skipped,), unjudged={"--sample": "a part only"}))
    notes = run["invocations"][0]["toolConfigurationNotifications"]
    assert [(note["level"], note["message"]["text"]) for note in notes] == [
        ("warning", "not judged: --sample: a part only"),
        ("note", "CFG109 skipped: no --reference given"),
    ]
    assert run["tool"]["driver"]["rules"][notes[1]["associatedRule"]["index"]]["id"] == "CFG109"


def test_every_rule_of_a_check_is_listed_once() -> None:
    listed = [rule["id"] for rule in run_of(broken("base-bf16"))["tool"]["driver"]["rules"]]
    assert sorted(listed) == sorted(rules_on())


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("models/a b", "models/a%20b/config.json"),
        ("/data/m", "file:///data/m/config.json"),
        (r"C:\models\m", "file:///C:/models/m/config.json"),
        ("hf:org/name@main", "hf:org/name@main/config.json"),
        ("./m/", "m/config.json"),
        ("m/model.safetensors", "m/config.json"),
    ],
)
def test_uris(path: str, uri: str) -> None:
    report = replace(
        report_of(finding(location=Location(file="config.json"))), target=Target(path=path, kind="hf-folder")
    )
    place = run_of(report)["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri and place["region"] == {"startLine": 1}


def test_a_line_of_a_trace_is_a_region() -> None:
    run = run_of(report_of(finding(location=Location(file="run.jsonl", line=17))))
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 17}


def test_more_than_code_scanning_takes_is_left_out_and_said() -> None:
    run = json.loads(render(many(MAX_RESULTS + 500)))["runs"][0]
    notes = run["invocations"][0]["toolExecutionNotifications"]
    left = MAX_RESULTS + 500 - len(run["results"])
    assert left >= 500 and notes[0]["message"]["text"] == f"{left} further findings are not in this log"

"""From inputs to causes: healthy ones, several faults at once, words, hostile bundles, and the page."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

import degarble
from degarble.checkpoint.workspace import Workspace
from degarble.cli.app import run
from degarble.diagnosing import DiagnosisInputs, diagnose
from degarble.endpoint_faults.fake_endpoint import FakeEndpoint
from degarble.endpoint_faults.interface import endpoint_faults
from degarble.errors import TargetError, UsageError
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Patient
from degarble.injection import find_fault
from degarble.report import html, markdown, text
from degarble.report import json as json_report
from degarble.report.interface import Report, Status
from degarble.report.load import load
from degarble.target import open_target
from tests.probe.endpoints import LIMITS, URL

TRACES = Path(__file__).parents[1] / "cases" / "traces"
DEMO = Path(degarble.__file__).parent / "data" / "demo"
FAULTS = ("scale-not-finite", "foreign-special-tokens", "generation-prompt-missing")
RULES = {"WGT201", "TOK413", "TPL505"}


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's own model with three faults of files at once."""
    source = open_target(DEMO)
    for name in FAULTS:
        workspace = Workspace(source)
        evidence = Evidence(source, Settings())
        find_fault(name).function(Patient(evidence=evidence, workspace=workspace, rng=random.Random(3)))
        source = workspace.source()
    out = tmp_path_factory.mktemp("sick") / "model"
    Workspace(source).save(out)
    return out


@pytest.fixture(scope="module")
def report(sick: Path) -> Report:
    return diagnose(DiagnosisInputs(target=str(sick), reference=str(DEMO), symptom="all exclamation marks"))


def told(report: Report) -> dict[str, Any]:
    found = report.diagnosis
    assert isinstance(found, dict)
    return found


def test_three_faults_are_three_causes_with_proof_and_the_copy_is_healthy(report: Report) -> None:
    assert {cause.finding.rule for cause in report.causes} == RULES
    causes = told(report)["causes"]
    assert {one["rule"] for one in causes} == RULES and all(one["proof"] for one in causes)
    assert {one["part"] for one in causes} == {"weights", "tokenizer", "template"}
    assert {one["proof_kind"] for one in causes} == {"counterfactual"}
    assert told(report)["repair"]["verified"] == "checked again: ok, causes left: 0"
    assert [one.finding.id for one in report.causes] == ["f1", "f2", "f3"] and report.exit_code() == 1


def test_every_cause_has_its_test_and_its_reach(report: Report) -> None:
    for one in told(report)["causes"]:
        assert f"--select {one['rule']}" in one["regression_test"] and one["blast_radius"] != "not known"
    assert len(told(report)["summary"]) == 3 and "3 causes were found" in told(report)["summary"][0]


def test_a_healthy_model_has_no_cause() -> None:
    found = diagnose(DiagnosisInputs(target=str(DEMO)))
    assert found.status is Status.OK and not found.causes and "Nothing wrong was found" in told(found)["summary"][0]
    assert told(found)["next"] == [] and told(found)["candidates"] == []


def test_a_healthy_endpoint_has_no_cause_and_a_sick_one_is_told_from_outside() -> None:
    def ask(endpoint: FakeEndpoint) -> Report:
        return diagnose(DiagnosisInputs(endpoint=URL, transport=endpoint.transport(), limits=LIMITS))

    healthy = ask(FakeEndpoint())
    assert not healthy.causes and healthy.status in (Status.OK, Status.PARTIAL)
    fault = next(one for one in endpoint_faults() if one.rule == "RUN807" and not one.needs_reference)
    sick = ask(fault.planted())
    assert "RUN807" in {cause.finding.rule for cause in sick.causes}
    assert told(sick)["next"] and "prefix-cache" in {one["hypothesis"] for one in told(sick)["candidates"]}


def test_an_endpoint_that_nobody_hears_is_no_evidence() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    found = diagnose(DiagnosisInputs(endpoint=URL, transport=httpx.MockTransport(refuse), limits=LIMITS))
    assert found.status is Status.ERROR and not found.causes and found.exit_code() == 2
    both = diagnose(
        DiagnosisInputs(target=str(DEMO), endpoint=URL, transport=httpx.MockTransport(refuse), limits=LIMITS)
    )
    assert both.status is Status.PARTIAL and "probe" in both.unjudged


def test_words_alone_ask_for_evidence() -> None:
    found = diagnose(DiagnosisInputs(symptom="全是感叹号 frobnicated"))
    assert found.status is Status.PARTIAL and not found.causes and not found.findings
    assert told(found)["said"]["rows"][0]["row"] == 1 and told(found)["said"]["unknown"] == ["frobnicated"]
    assert told(found)["next"][0]["missing"] and told(found)["candidates"][0]["hypothesis"] == "half-overflow"


def test_nothing_to_start_from() -> None:
    with pytest.raises(UsageError, match="nothing to start from"):
        diagnose(DiagnosisInputs(reference=str(DEMO)))


def test_a_budget_that_reaches_nothing_says_so() -> None:
    found = diagnose(DiagnosisInputs(target=str(DEMO), symptom="!!!", budget_seconds=1.0))
    assert "the budget of 1 s did not reach it" in found.unjudged["check"] and found.status is Status.PARTIAL


def bundle(folder: Path, trace: str = "", **changes: Any) -> Path:
    facts = {
        "schema": 1, "time": "2026-11-30T20:45:12Z", "trip": {"guard": "non-finite-logits", "message": "NaN"},
        "request": {"id": "req-1", "num_output": 4}, "model": {"dtype": "fp16"}, "trace_left_out": None,
    }  # fmt: skip
    folder.mkdir()
    (folder / "incident.json").write_text(json.dumps(facts | changes))
    if trace:
        (folder / "trace.jsonl").write_text(trace)
    return folder


def test_an_incident_names_the_cause_in_its_trace(tmp_path: Path) -> None:
    trace = (TRACES / "fault-double-free.jsonl").read_text()
    found = diagnose(DiagnosisInputs(incident=str(bundle(tmp_path / "one", trace))))
    assert found.causes and found.causes[0].finding.rule.startswith("KVC") and found.exit_code() == 1
    assert told(found)["timeline"][0]["when"] == "2026-11-30T20:45:12Z"
    assert told(found)["causes"][0]["part"] == "kv cache"


def test_an_incident_without_a_cause_in_it_is_no_guess(tmp_path: Path) -> None:
    found = diagnose(DiagnosisInputs(incident=str(bundle(tmp_path / "one"))))
    assert not found.causes and found.status is Status.PARTIAL and "no trace.jsonl" in found.unjudged["bundle"]
    assert told(found)["candidates"][0]["hypothesis"] == "half-overflow"


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"trip": 1}', b"\xff\xfe", b"[" * 5000, b'{"trip": {"guard": 3}, "request": {"id": "a"}}'],
)
def test_a_hostile_bundle_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "incident.json").write_bytes(content)
    with pytest.raises(TargetError, match=r"incident\.json"):
        diagnose(DiagnosisInputs(incident=str(tmp_path)))


def test_a_bundle_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"incident\.json"):
        diagnose(DiagnosisInputs(incident=str(tmp_path / "none")))


def test_the_page_the_text_and_the_document_tell_the_same(report: Report) -> None:
    page, prose = html.render(report), markdown.render(report)
    for part in ("Summary", "Timeline", "Proof", "Blast radius", "Repair", "Regression tests to add"):
        assert part in page and part in prose and part in text.render(report)
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert "<script src" not in page and "http-equiv" in page
    document = json.loads(json_report.render(report))
    assert {"finding", "rule", "symptoms", "story", "predicts", "confirm"} == set(document["causes"][0])
    assert load(json_report.render(report).encode(), "saved").diagnosis == document["diagnosis"]


def test_hostile_names_are_escaped_on_the_page(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "one", trip={"guard": "<script>alert(1)</script>", "message": "\u202e<img src=x>"})
    found = diagnose(DiagnosisInputs(incident=str(folder)))
    page = html.render(found)
    assert "<script>alert" not in page and "<img" not in page and "\u202e" not in page
    assert "<img" not in markdown.render(found)


@pytest.mark.parametrize(
    "value", [[], {"summary": 3, "causes": [1, {"rule": None}], "next": "x", "said": [], "repair": 1}]
)
def test_a_saved_account_of_any_shape_can_be_shown(report: Report, value: Any) -> None:
    from dataclasses import replace

    shown = replace(report, diagnosis=value if isinstance(value, dict) else {})
    assert html.render(shown) and markdown.render(shown) and text.render(shown)


def test_the_command_writes_its_pages(sick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["diagnose", str(sick), "--format", "json", "--out", str(tmp_path / "out")]
    assert run(arguments) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "findings"
    assert {one.name for one in (tmp_path / "out").iterdir()} == {"incident.html", "incident.md", "incident.json"}
    assert run(["diagnose"]) == 2 and "nothing to start from" in capsys.readouterr().err


def test_what_needs_a_repair_of_its_own_is_a_cause_and_no_symptom(report: Report) -> None:
    """TPL505 can come of TOK413, and is put below it by its edge; here it stays when TOK413 is repaired."""
    below = {(one.rule, one.location) for cause in report.causes for one in cause.symptoms}
    assert not below & {(cause.finding.rule, cause.finding.location) for cause in report.causes}
    assert "TPL505" in {cause.finding.rule for cause in report.causes}

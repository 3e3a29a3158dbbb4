"""Workflow commands: read back by the rules of the runner, they say what the report says and can start nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from degarble.finding import Location, Severity
from degarble.report.github import MAX_COMMANDS, command, render
from degarble.report.interface import Target
from degarble.runner import Outcome, RuleResult
from tests.report.samples import HOSTILE, finding, hostile, layered, many, report_of

COMMAND = re.compile(r"::(?P<name>[^ :]+) (?P<properties>[^:]*)::(?P<message>.*)\Z")


def decoded(line: str) -> tuple[str, dict[str, str], str]:
    """A line as the runner reads it."""
    match = COMMAND.match(line)
    assert match is not None, line

    def plain(text: str) -> str:
        for code, char in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
            text = text.replace(code, char)
        return text

    pairs = [pair.partition("=") for pair in match["properties"].split(",")]
    return match["name"], {key: plain(value) for key, _, value in pairs}, plain(match["message"])


def test_a_command_comes_back() -> None:
    name, properties, message = decoded(command("error", "100%\nof a:b,c", file="a,b:c%", title="x"))
    assert (name, properties, message) == ("error", {"file": "a,b:c%", "title": "x"}, "100%\nof a:b,c")


def test_causes_are_annotations_of_files() -> None:
    first, *_, last = render(layered()).splitlines()
    name, properties, message = decoded(first)
    assert name == "error"
    assert properties["file"] == "models/tiny/model.safetensors"
    assert properties["title"].startswith("WGT206 ")
    assert "measured: ratio 31.7; bound ratio_max 8" in message and "repair: " in message
    assert last == "degarble: models/tiny: 1 error and 1 warning, 2 causes"


def test_severities() -> None:
    report = report_of(
        finding("CKP101", severity=Severity.WARNING), finding("ENG701", severity=Severity.INFO), target="m"
    )
    assert [decoded(line)[0] for line in render(report).splitlines()[:-1]] == ["warning"]
    assert [decoded(line)[0] for line in render(report, detail=1).splitlines()[:-1]] == ["warning", "notice"]


def test_a_hub_repository_has_no_file_here() -> None:
    report = replace(report_of(finding()), target=Target(path="hf:org/name", kind="hub"))
    assert "file" not in decoded(render(report).splitlines()[0])[1]


def test_a_line_is_named() -> None:
    report = report_of(finding(location=Location(file="a.jsonl", line=9)))
    assert decoded(render(report).splitlines()[0])[1]["line"] == "9"


def test_failure_crash_and_what_was_not_judged() -> None:
    crashed = RuleResult(rule="CKP101", outcome=Outcome.CRASHED, reason="KeyError")
    lines = render(report_of(results=(crashed,), unjudged={"--sample": "a part"}, failure="broken")).splitlines()
    assert [decoded(line)[0] for line in lines[:-1]] == ["error", "warning", "error"]
    assert lines[-1].endswith("could not be checked")


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_names_start_no_command_of_their_own(case: str) -> None:
    lines = render(hostile(HOSTILE[case]), detail=1).splitlines()
    for line in lines[:-1]:
        name, properties, _ = decoded(line)
        assert name in ("error", "warning", "notice") and set(properties) <= {"file", "line", "title"}
    assert lines[-1].startswith("degarble: ") and "##[" not in lines[-1]


def test_more_causes_are_counted() -> None:
    lines = render(many(MAX_COMMANDS + 5)).splitlines()
    assert len(lines) == MAX_COMMANDS + 2 and lines[-2] == "degarble: … and 5 more causes"

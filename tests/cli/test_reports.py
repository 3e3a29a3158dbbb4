"""`check` and `report` with formats and files: which format goes where, and what happens when it cannot."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from degarble.cli.app import run
from degarble.cli.output import Destination, destinations
from degarble.errors import UsageError
from degarble.report.writers import formats

DEMO = "src/degarble/data/demo"
MARKS = {
    "text": "rules checked",
    "json": '"schema_version"',
    "sarif": '"ruleId"',
    "junit": "<testsuites",
    "markdown": "### ",
    "github": "degarble: ",
    "html": "<!doctype html>",
}


@pytest.mark.parametrize(
    ("format", "outputs", "expected"),
    [
        (None, None, [("text", None)]),
        ("sarif", None, [("sarif", None)]),
        (None, ["a.sarif"], [("sarif", "a.sarif")]),
        (None, ["a"], [("text", "a")]),
        ("junit", ["a.json"], [("junit", "a.json")]),
        (None, ["-"], [("text", None)]),
        (None, ["a.json", "b.HTML"], [("json", "a.json"), ("html", "b.HTML")]),
        ("github", ["-", "a.sarif", "c"], [("github", None), ("sarif", "a.sarif"), ("github", "c")]),
        (None, ["-", "a.xml"], [("text", None), ("junit", "a.xml")]),
    ],
)
def test_where_each_format_goes(
    format: str | None, outputs: list[str] | None, expected: list[tuple[str, str | None]]
) -> None:
    assert destinations(format, outputs) == [Destination(format=name, file=file) for name, file in expected]


@pytest.mark.parametrize(
    ("format", "outputs"), [("pdf", None), (None, ["a.json", "b"]), (None, ["a.json", "a.json"]), ("text", ["-", "-"])]
)
def test_what_cannot_be_meant(format: str | None, outputs: list[str] | None) -> None:
    with pytest.raises(UsageError):
        destinations(format, outputs)


def test_every_format_has_a_mark() -> None:
    assert sorted(MARKS) == formats()


@pytest.mark.parametrize("format", sorted(MARKS))
def test_check_prints_each_format(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", DEMO, "--level", "header", "--format", format]) == 0
    assert MARKS[format] in capsys.readouterr().out


@pytest.mark.parametrize("format", sorted(MARKS))
def test_a_target_that_cannot_be_read_is_said_in_each_format(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "no/such/folder", "--format", format]) == 2
    shown = capsys.readouterr()
    assert "no such file or folder" in shown.out
    assert format == "text" or "no such file or folder" in shown.err


def test_several_files_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("r.json", "r.sarif", "r.xml", "r.md", "r.html", "r.txt")]
    outputs = [word for file in files for word in ("--output", str(file))]
    assert run(["check", DEMO, "--output", "-", *outputs]) == 0
    assert MARKS["text"] in capsys.readouterr().out
    for file, format in zip(files, ("json", "sarif", "junit", "markdown", "html", "text"), strict=True):
        assert MARKS[format] in file.read_text(encoding="utf-8")
    assert "profile" not in json.loads(files[0].read_text())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(file.name for file in files)


def test_the_page_has_its_drawings_without_profile(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, page = tmp_path / "broken", tmp_path / "page.html"
    run(["inject", "zero-point-off-by-one", str(golden / "gptqmodel-gptq-sym-g128"), "--out", str(broken)])
    assert run(["check", str(broken), "--output", str(page)]) == 1
    assert "<svg" in page.read_text(encoding="utf-8")
    saved, again = tmp_path / "saved.json", tmp_path / "again.html"
    run(["check", str(broken), "--profile", "--output", str(saved)])
    assert run(["report", str(saved), "--output", str(again)]) == 0
    assert again.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


def test_a_partial_file_is_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / "r.json").mkdir()
    assert run(["check", DEMO, "--level", "header", "--output", str(tmp_path / "r.json")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("format", sorted(MARKS))
def test_report_shows_a_saved_one_again(format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "saved.json"
    assert run(["check", DEMO, "--level", "header", "--output", str(saved)]) == 0
    assert run(["check", DEMO, "--level", "header", "--format", format]) == 0
    fresh = capsys.readouterr().out
    assert run(["report", str(saved), "--format", format]) == 0
    assert capsys.readouterr().out == fresh


def test_report_reads_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["check", DEMO, "--level", "header", "--format", "json"])
    text = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(["report", "-", "--format", "json"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "schema_version"),
        ("not json", "one JSON document"),
        ('{"schema_version": 9}', "expected 1, found 9"),
        ('{"schema_version": 1}', "tool"),
    ],
)
def test_a_malformed_report_is_status_2(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.json").write_text(text)
    assert run(["report", str(tmp_path / "bad.json"), "--format", "html"]) == 2
    shown = capsys.readouterr()
    assert words in shown.err and "bad.json" in shown.err and shown.out == ""
    assert run(["report", str(tmp_path / "bad.json"), "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["status"] == "error"


def test_report_leaves_with_the_status_that_is_asked_for(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, saved = tmp_path / "broken", tmp_path / "saved.json"
    run(["inject", "CKP101", str(golden / "base-bf16"), "--out", str(broken)])
    run(["check", str(broken), "--output", str(saved)])
    assert run(["report", str(saved)]) == 0
    assert run(["report", str(saved), "--fail-on", "error"]) == 1
    assert run(["report", str(saved), "--fail-on", "never"]) == 2
    run(["check", "no/such/folder", "--output", str(saved)])
    assert run(["report", str(saved), "--fail-on", "error"]) == 2
    assert "no such file or folder" in capsys.readouterr().out


def test_the_summary_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run(["check", DEMO, "--level", "header", "--format", "json"]) == 0
    assert summary.read_text() == "before\n"
    assert run(["check", DEMO, "--level", "header", "--format", "github"]) == 0
    assert summary.read_text().startswith("before\n### ✅ ")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "folder"))
    capsys.readouterr()
    assert run(["check", DEMO, "--level", "header", "--format", "github"]) == 0
    assert "GITHUB_STEP_SUMMARY" in capsys.readouterr().err


def test_an_old_terminal_gets_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert run(["check", DEMO, "--level", "header", "--format", "markdown"]) == 0
    sys.stdout.flush()
    assert raw.getvalue().startswith(b"### \\u2705 ")

"""What holds for every format: found by walking, bounded in size and time, the same from a saved document, never unsafe."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from degarble.errors import UsageError
from degarble.registry import Level
from degarble.report.load import load
from degarble.report.writers import format_of, formats, writer
from tests.report.samples import GOLDEN_NAMES, HOSTILE, broken, hostile, layered, many

FAULTS = ("module-missing", "rope-settings-lost")
MAX_SECONDS, MAX_BYTES = 2.0, 5_000_000


def test_formats_are_found_by_walking() -> None:
    assert formats() == ["github", "html", "json", "junit", "markdown", "sarif", "text"]
    with pytest.raises(UsageError, match="github, html, json"):
        writer("interface")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("a/report.json", "json"),
        ("report.SARIF", "sarif"),
        ("report.xml", "junit"),
        ("report.md", "markdown"),
        ("report.html", "html"),
        ("report.htm", "html"),
        ("report.txt", "text"),
        ("report", None),
        ("report.pdf", None),
        ("-", None),
    ],
)
def test_a_file_asks_for_a_format_by_its_ending(file: str, expected: str | None) -> None:
    assert format_of(file) == expected


def test_a_writer_costs_one_file(tmp_path: Path) -> None:
    """And its test: nothing else is edited."""
    (tmp_path / "count.py").write_text(
        'ENDINGS = (".count",)\n\n\ndef render(report, *, detail=0, colour=False):\n    return f"{len(report.findings)}\\n"\n'
    )
    code = (
        "import sys, degarble.report\n"
        f"degarble.report.__path__.append({str(tmp_path)!r})\n"
        "from degarble.cli.app import run\n"
        "from degarble.report.writers import format_of, formats\n"
        "assert 'count' in formats() and format_of('x.count') == 'count'\n"
        "sys.exit(run(['check', 'src/degarble/data/demo', '--level', 'header', '--format', 'count']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().isdigit()


def test_asking_for_the_formats_loads_none_of_them() -> None:
    code = (
        "import sys\nfrom degarble.report.writers import formats\nformats()\n"
        "assert not {'degarble.report.html', 'degarble.report.sarif', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_saved_report_renders_the_same(name: str) -> None:
    report = broken(name, *FAULTS, level=Level.HEADER)
    assert report.causes
    again = load(writer("json")(report).encode())
    for format in formats():
        for detail in (-1, 0, 1):
            assert writer(format)(again, detail=detail) == writer(format)(report, detail=detail), format


def test_a_saved_report_with_a_profile_renders_the_same() -> None:
    report = broken("gptqmodel-gptq-sym-g128", "zero-point-off-by-one", "scale-not-finite", profile=True)
    again = load(writer("json")(report).encode())
    assert "<svg" in writer("html")(report)
    for format in formats():
        assert writer(format)(again) == writer(format)(report), format


@pytest.mark.parametrize("format", ["github", "html", "json", "junit", "markdown", "sarif", "text"])
def test_ten_thousand_findings(format: str) -> None:
    report = many(10_000)
    assert len(report.causes) == 10_000
    writer(format)(many(1))
    started = time.process_time()
    text = writer(format)(report)
    seconds = time.process_time() - started
    assert seconds < MAX_SECONDS
    assert len(text.encode()) < MAX_BYTES * (2 if format == "json" else 1)  # JSON leaves nothing out


@pytest.mark.parametrize("format", ["github", "html", "junit", "markdown", "sarif", "text"])
def test_names_of_ten_million_characters(format: str) -> None:
    report = hostile("x" * 10_000_000)
    started = time.process_time()
    text = writer(format)(report)
    assert time.process_time() - started < MAX_SECONDS
    assert len(text) < 1_000_000
    assert "10,000,000 characters" in text


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("format", ["github", "html", "junit", "markdown", "sarif", "text"])
def test_nothing_invisible_is_written(format: str, case: str) -> None:
    text = writer(format)(hostile(HOSTILE[case]), detail=1)
    text.encode("utf-8")
    seen = set(text) - {"\n", "\ufe0f"}  # the selector that makes a coloured sign of a warning sign
    assert not [char for char in seen if not char.isprintable()]


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_report_survives_being_saved(case: str) -> None:
    report = hostile(HOSTILE[case])
    document = writer("json")(report)
    again = load(document.encode())
    assert writer("json")(again) == document
    assert [f.fingerprint for f in again.findings] == [f.fingerprint for f in report.findings]


def test_colour_is_for_terminals_only() -> None:
    report = layered()
    assert "\x1b[" in writer("text")(report, colour=True)
    for format in formats():
        assert "\x1b" not in writer(format)(report)

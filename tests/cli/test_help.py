"""`degarble help` and the completion of the shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from degarble.cli.app import run
from degarble.cli.help import topics
from degarble.cli.output import complete_fail_on
from degarble.finding import Confidence, Role, Severity
from degarble.report.interface import FAIL_ON
from degarble.report.writers import format_of, formats


def test_topics_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == ["environment", "exit-codes", "formats", "severities"]
    for topic in listed:
        assert run(["help", topic]) == 0
        assert capsys.readouterr().out == topics()[topic]
    assert run(["help", "nothing"]) == 2
    assert "one of environment, exit-codes" in capsys.readouterr().err


def test_the_pages_say_what_is_so() -> None:
    pages = topics()
    rows = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", pages["formats"], flags=re.MULTILINE))
    assert sorted(rows) == formats()
    for name, endings in rows.items():
        for ending in re.findall(r"`(\.\w+)`", endings):
            assert format_of("x" + ending) == name
    assert re.findall(r"^\| `(\w+)`", pages["exit-codes"], flags=re.MULTILINE) == list(FAIL_ON)
    assert re.findall(r"^\| (\d) ", pages["exit-codes"], flags=re.MULTILINE) == ["0", "1", "2"] * 2
    for word in (*Severity, *Confidence, *Role):
        assert f"| {word} |" in pages["severities"]


def test_every_named_variable_is_read_somewhere() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in Path("src/degarble").rglob("*.py"))
    foreign = {"NO_COLOR", "COLUMNS", "_DEGARBLE_COMPLETE"}  # read by rich and by typer
    named = set(re.findall(r"^\| `(\w+)`", topics()["environment"], flags=re.MULTILINE))
    assert foreign < named and all(name in sources for name in named - foreign)


def test_fail_on_is_completed_with_what_it_takes() -> None:
    assert tuple(complete_fail_on("")) == FAIL_ON


def completed(words: str) -> list[str]:
    """What bash is offered after these words."""
    environment = os.environ | {
        "_DEGARBLE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    command = [sys.executable, "-m", "degarble"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return shown.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("degarble ex", ["explain"]),
        ("degarble check --format s", ["sarif"]),
        ("degarble check --fail-on p", ["partial"]),
        ("degarble explain CKP10", [f"CKP10{n}" for n in range(1, 10)]),
        ("degarble help se", ["severities"]),
        ("degarble report --fo", ["--format"]),
    ],
)
def test_completion(words: str, expected: list[str]) -> None:
    assert completed(words) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_the_script_for_bash_works_in_bash(tmp_path: Path) -> None:
    """As `degarble --show-completion` prints it in a bash."""
    shim = tmp_path / "degarble"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m degarble "$@"\n')
    shim.chmod(0o755)
    script = (
        'script=$(degarble --show-completion bash) || script=$(degarble --show-completion)\neval "$script"\n'
        "COMP_WORDS=(degarble check --format m) COMP_CWORD=3\n"
        "function_name=$(complete -p degarble | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n"
        '"$function_name" degarble; echo "${COMPREPLY[@]}"'
    )
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    shown = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["markdown"], shown.stderr

"""The fixture, used by a test suite of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from degarble.cli.app import run

SUITE = """
import pytest
from degarble import UsageError

def test_healthy(degarble_check):
    assert degarble_check({healthy!r}, level="header").status == "ok"

def test_broken(degarble_check):
    degarble_check({broken!r}, level="header")

def test_missing(degarble_check):
    degarble_check("no/such/folder")

def test_note(degarble_check):
    degarble_check({healthy!r}, level="header", fail_on="info")

def test_usage(degarble_check):
    with pytest.raises(UsageError):
        degarble_check({healthy!r}, fail_on="never")
"""


def test_a_finding_fails_the_test_with_the_report(golden: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    assert run(["inject", "CKP101", str(golden / "base-bf16"), "--out", str(broken)]) == 0
    healthy = str(golden / "base-bf16")
    (tmp_path / "test_suite.py").write_text(SUITE.format(healthy=healthy, broken=str(broken)))
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": "src", "PYTEST_ADDOPTS": ""}
    options = ["-p", "degarble.pytest_plugin", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_suite.py")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "3 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "error CKP101 shard-truncated" in done.stdout and "repair" in done.stdout
    assert "no such file or folder" in done.stdout
    assert "Traceback" not in done.stdout and "pytest_plugin.py" not in done.stdout


def test_pytest_finds_it_where_degarble_is_installed() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"degarble": "degarble.pytest_plugin"}


def test_loading_it_costs_next_to_nothing() -> None:
    code = (
        "import pytest, sys\nbefore = set(sys.modules)\nimport degarble.pytest_plugin\n"
        "print(sorted(name for name in set(sys.modules) - before if not name.startswith('degarble')))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_the_fixture_is_documented() -> None:
    assert "degarble_check" in Path("docs/how-to/ci.md").read_text(encoding="utf-8")

"""The hand-written pages: the tutorial does what it says, and the site builds without a warning."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from degarble.cli.app import run

ROOT = Path(__file__).parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial" / "break-and-repair.md").read_text(encoding="utf-8")
DEMO = ROOT / "src" / "degarble" / "data" / "demo"
STATUS = {
    "degarble check sick": 1,
    "degarble fix sick --plan": 2,
    "degarble check sick --output report.json --output report.html --output report.md": 1,
}
"""Of commands that do not end with 0, as the page says."""


def commands(text: str) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_the_tutorial_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    listed = commands(TUTORIAL)
    assert set(STATUS) <= set(listed)
    for command in listed:
        words = [str(DEMO) if word == "DEMO" else word for word in shlex.split(command)]
        assert run(words[1:]) == STATUS.get(command, 0), command
    assert "scale-missing" in capsys.readouterr().out
    for name in ("report.json", "report.html", "report.md", "report.sarif"):
        assert (tmp_path / name).stat().st_size > 1000
    sick, again = tmp_path / "sick", tmp_path / "sick-again"
    assert {path.name: path.read_bytes() for path in sick.iterdir()} == {
        path.name: path.read_bytes() for path in again.iterdir()
    }


def _pages(nav: object) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    inside = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ()
    return {page for item in inside for page in _pages(item)}


def test_every_page_is_in_the_navigation() -> None:
    """But for the pages of rules, which the table of rules leads to."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    docs = ROOT / "docs"
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert _pages(site["nav"]) == {name for name in there if not name.startswith("rules/")}
    assert site["plugins"] == []


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "rules" / "QNT101.html").exists()

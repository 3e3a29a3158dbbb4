"""Every command in the README does what it says: it is run as written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from degarble.cli.app import run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]
MAKE = {"make demo", "make test"}
"""Run by CI itself; running the tests inside the tests would not end."""


def test_the_two_commands_are_there() -> None:
    assert set(COMMANDS) >= MAKE
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {command.removeprefix("make ") for command in MAKE} <= targets


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in MAKE])
def test_command(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)
    assert words[0] == "degarble"
    assert run(words[1:]) == 0
    assert capsys.readouterr().out.strip()


def test_every_link_leads_to_a_file() -> None:
    for page in (ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"

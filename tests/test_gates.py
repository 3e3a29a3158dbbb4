"""The gates that other repositories use: the pre-commit hooks and the GitHub Action, run as far as they run offline."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from degarble.cli.app import run
from degarble.report.interface import FAIL_ON
from degarble.report.writers import formats

SCHEMAS = Path(__file__).parent / "cases" / "schemas"
HOOKS: list[dict[str, Any]] = yaml.safe_load(Path(".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
ACTION: dict[str, Any] = yaml.safe_load(Path("action.yml").read_text(encoding="utf-8"))
DEMO = "src/degarble/data/demo"


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_has_what_pre_commit_requires_and_runs(hook: dict[str, Any]) -> None:
    assert {"id", "name", "entry", "language", "files"} <= set(hook)
    assert hook["language"] == "python" and hook["pass_filenames"] is False
    words = shlex.split(hook["entry"])
    assert words[0] == "degarble" and run([*words[1:], DEMO]) == 0


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("models/a/config.json", True),
        ("model.safetensors", True),
        ("m/model-Q4_0.gguf", True),
        ("tokenizer.model", True),
        ("m/chat_template.jinja", True),
        ("README.md", False),
        ("src/config.py", False),
    ],
)
def test_hooks_look_at_files_of_a_checkpoint(file: str, expected: bool) -> None:
    for hook in HOOKS:
        assert bool(re.search(hook["files"], file)) is expected


def test_the_action_fits_its_schema() -> None:
    jsonschema.validate(ACTION, json.loads((SCHEMAS / "github-action.json").read_text(encoding="utf-8")))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(ACTION | {"runs": {}}, json.loads((SCHEMAS / "github-action.json").read_text()))


def test_the_action_names_formats_and_limits_that_exist() -> None:
    assert ACTION["inputs"]["format"]["default"] in formats()
    assert set(re.findall(r"\b(github|text|markdown|json)\b", ACTION["inputs"]["format"]["description"])) <= set(
        formats()
    )
    assert ACTION["inputs"]["fail-on"]["default"] == FAIL_ON[0]
    assert all(limit in ACTION["inputs"]["fail-on"]["description"] for limit in FAIL_ON)


def test_no_script_of_the_action_holds_an_expression() -> None:
    """Inputs reach scripts through the environment: pasted into a script they could be code."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="no bash")
@pytest.mark.parametrize(
    ("fault", "arguments", "fail_on", "status"),
    [
        (None, "", "error", 0),
        ("CKP101", "--level header --select 'CKP, CFG'", "error", 1),
        (None, "--level $(x)", "error", 2),
    ],
)
def test_the_check_of_the_action(
    fault: str | None, arguments: str, fail_on: str, status: int, golden: Path, tmp_path: Path
) -> None:
    target = golden / "base-bf16"
    if fault is not None:
        run(["inject", fault, str(target), "--out", str(tmp_path / "broken")])
        target = tmp_path / "broken"
    program = tmp_path / "degarble" / "bin" / "degarble"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m degarble "$@"\n')
    program.chmod(0o755)
    output, summary = tmp_path / "output", tmp_path / "summary"
    environment = os.environ | {
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
        "TARGET": str(target),
        "ARGS": arguments,
        "FAIL_ON": fail_on,
        "FORMAT": "github",
    }
    (script,) = [step["run"] for step in ACTION["runs"]["steps"] if step.get("id") == "check"]
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]  # as the runner starts it
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    told = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert told.pop("exit-code") == str(status)
    if status == 2:
        assert not told
        return
    assert ("::error " in done.stdout) == (status == 1)
    assert json.loads(Path(told["sarif"]).read_text())["version"] == "2.1.0"
    assert json.loads(Path(told["json"]).read_text())["schema_version"] == 1
    assert Path(told["html"]).read_text().startswith("<!doctype html>")
    assert summary.read_text().startswith("### ")

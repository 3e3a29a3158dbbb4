"""One rule on one edited golden checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Settings
from degarble.finding import Finding
from degarble.runner import Outcome
from degarble.target import open_target

Edit = Callable[[Workspace], object]


def judge(
    rule: str, path: Path, edit: Edit = lambda workspace: None, settings: Settings | None = None
) -> list[Finding]:
    """What the rule finds after the edit. A crash fails the test."""
    workspace = Workspace(open_target(path))
    edit(workspace)
    return judge_workspace(rule, workspace, settings)


def judge_workspace(rule: str, workspace: Workspace, settings: Settings | None = None) -> list[Finding]:
    """What the rule finds in an edited checkpoint."""
    report = check_source(workspace.source(), settings or Settings(), None, [rule])
    assert report.failure is None
    assert all(result.outcome is not Outcome.CRASHED for result in report.results), report.results
    return list(report.findings)


def quantization(workspace: Workspace) -> dict:
    """The quantisation config, to be changed in place."""
    config: dict = workspace.json("config.json")["quantization_config"]
    return config


def write(workspace: Workspace, key: str, value: object) -> None:
    """Set one key of the quantisation config."""
    quantization(workspace)[key] = value

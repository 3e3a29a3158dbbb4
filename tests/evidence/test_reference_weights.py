"""Weights beside a healthy copy's, where one parameter holds all experts with their inputs first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from degarble.api import check_evidence
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.report.interface import Report
from degarble.runner import Outcome
from degarble.target import open_target
from tests.family_patients import family_patients

LAYER = "model.layers.0"
GAINS = np.exp(np.linspace(-0.8, 0.8, 16)).astype(np.float32)  # [hidden]


def compared(*, norm: bool, experts: bool, router: bool) -> Report:
    """gpt-oss beside itself, the second norm scaled or not, and what reads it scaled back or not."""
    path = family_patients() / "gpt-oss"
    workspace = Workspace(open_target(path))
    modules = Evidence(open_target(path), Settings()).get("modules")
    scaled: dict[str, Any] = {f"{LAYER}.post_attention_layernorm": GAINS} if norm else {}
    if experts:
        scaled[f"{LAYER}.mlp.experts.gate_up_proj"] = 1 / GAINS[None, :, None]  # [experts, in, out]
    if router:
        scaled[f"{LAYER}.mlp.router"] = 1 / GAINS[None, :]  # [experts, in]
    for name, factors in scaled.items():
        info = modules[name].any_part
        stored = modules[name].reader.read(info)
        workspace.set(info.name, (stored.astype(np.float32) * factors).astype(stored.dtype))
    healthy = Evidence(open_target(path), Settings())
    return check_evidence(Evidence(workspace.source(), Settings(), healthy))


def folds_found(report: Report) -> set[str]:
    """Names of weights that WGT227 is about; no rule may have crashed."""
    assert not [result for result in report.results if result.outcome is Outcome.CRASHED]
    found = [finding for finding in report.findings if finding.rule == "WGT227"]
    return {place.module or "" for finding in found for place in finding.all_places}


@pytest.mark.parametrize("everything", [False, True])
def test_nothing_folded_and_a_whole_fold_are_silent(everything: bool) -> None:
    report = compared(norm=everything, experts=everything, router=everything)
    assert not folds_found(report)
    assert not [finding for finding in report.findings if finding.rule == "WGT228"]


def test_experts_that_do_not_undo_the_fold() -> None:
    assert folds_found(compared(norm=True, experts=False, router=True)) == {f"{LAYER}.mlp.experts.gate_up_proj"}


def test_a_router_that_does_not_undo_the_fold() -> None:
    assert folds_found(compared(norm=True, experts=True, router=False)) == {f"{LAYER}.mlp.router"}

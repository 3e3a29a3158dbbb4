"""A weight scale that ModelSlim left out, from the two scales it wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import faults
from degarble.finding import Severity
from degarble.fixes.reference import is_equal_tensor
from degarble.registry import Level
from degarble.repairing.fix import fix
from degarble.repairing.plan import Planner
from degarble.target import open_target
from tests.checks.quantization.ascend_patient import ascend_w8a8
from tests.conftest import unpacked_golden
from tests.planting import assert_first_cause, healthy_report, plant

HEADER = Settings(level=Level.HEADER)
FAULT = next(fault for fault in faults() if fault.name == "derivable-scale-left-out")


@pytest.fixture(scope="module", params=[False, True], ids=["products", "products-as-bits"])
def healthy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With products as float32, and as the bits in int64."""
    return ascend_w8a8(unpacked_golden(), tmp_path_factory.mktemp("ascend") / "w8a8", as_bits=request.param)


def sick(healthy: Path, tmp_path: Path) -> Path:
    """Without any weight scale."""
    workspace = Workspace(open_target(healthy))
    for name in list(workspace.shard("model.safetensors").tensors):
        if name.endswith(".weight_scale"):
            workspace.drop(name)
    workspace.save(tmp_path / "sick")
    return tmp_path / "sick"


def test_it_is_a_warning_and_the_only_cause(healthy: Path) -> None:
    assert healthy_report(healthy).summary["warning"] + healthy_report(healthy).summary["error"] == 0
    assert_first_cause(FAULT, healthy)
    report, _ = plant(FAULT, healthy)
    assert report.causes[0].finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    "name", ["scale-missing", "companions-missing-together", "input-scale-missing-from-one-module"]
)
def test_other_losses_are_still_errors(healthy: Path, name: str) -> None:
    fault = next(fault for fault in faults() if fault.name == name)
    assert_first_cause(fault, healthy)


def test_repaired_replayed_and_left_alone(healthy: Path, tmp_path: Path) -> None:
    """The same values as the healthy copy, the same bytes again, and nothing to do then."""
    damaged = sick(healthy, tmp_path)
    done = fix(damaged, tmp_path / "fixed", settings=HEADER, fail_on="warning")
    assert [(step.repair, step.is_safe) for step in done.plan.steps] == [("derive-companion", True)]
    assert done.exit_code("warning") == 0
    fixed, original = open_target(tmp_path / "fixed"), open_target(healthy)
    mine, theirs = (Evidence(source, HEADER).get("modules") for source in (fixed, original))
    assert mine.keys() == theirs.keys()
    for name, module in mine.items():
        if module.form.is_quantized:
            assert np.array_equal(module.scales(), theirs[name].scales())
    fix(damaged, tmp_path / "again", replay=tmp_path / "fixed" / "degarble-fix.json", settings=HEADER)
    shard = "model.safetensors"
    assert (tmp_path / "again" / shard).read_bytes() == (tmp_path / "fixed" / shard).read_bytes()
    assert not fix(tmp_path / "fixed", settings=HEADER, fail_on="warning").plan.steps


def test_the_type_of_its_peers_gives_the_same_bits(healthy: Path) -> None:
    """One module alone gets back exactly what it had."""
    workspace = Workspace(open_target(healthy))
    name = next(name for name in workspace.shard("model.safetensors").tensors if name.endswith(".weight_scale"))
    workspace.drop(name)
    found = Planner(workspace.source(), HEADER).plan()
    assert [step.repair for step in found.steps] == ["derive-companion"]
    fixed, original = found.workspace.source(), open_target(healthy)
    tensors = [Evidence(source, HEADER).get("tensors")[name] for source in (fixed, original)]
    assert is_equal_tensor(fixed, tensors[0], original, tensors[1])


def test_a_product_that_tells_nothing_is_refused(healthy: Path, tmp_path: Path) -> None:
    workspace = Workspace(open_target(sick(healthy, tmp_path)))
    name = next(name for name in workspace.shard("model.safetensors").tensors if name.endswith(".input_scale"))
    workspace.set(name, np.zeros(1, np.float32))
    found = Planner(workspace.source(), HEADER).plan()
    assert any("input_scale is not one positive number" in one.reason for one in found.refused)

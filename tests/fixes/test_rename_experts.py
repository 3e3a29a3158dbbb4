"""Experts in stacks of other names: what shapes and counts tell, what names tell, and what nothing tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from degarble.checkpoint.tensor_data import Array
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.fixes.expert_seats import meaning
from degarble.registry import Level
from degarble.repairing.plan import Plan, Planner
from degarble.target import open_target
from tests.checks.config.checkpoints import config_of, shapes_of, source
from tests.conftest import unpacked_golden

SHARD = "model.safetensors"
CONFIG = config_of("qwen3_moe", moe_intermediate_size=20, mlp_only_layers=[])
EXPERTS, WIDTH, HIDDEN = 4, 20, 48
HEADER = Settings(level=Level.HEADER)
FUSED = ("model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.experts.down_proj")
Stacks = Mapping[str, Array]


def healthy(*, fused: bool, config: Mapping[str, object] = CONFIG) -> Workspace:
    """A small mixture of experts with random values in the experts of its layer 1."""
    workspace = Workspace(source(config, shapes_of(config, ("fused",) if fused else ("one by one",))))
    rng = np.random.default_rng(0)
    for name, slot in list(workspace.shard(SHARD).tensors.items()):
        if ".layers.1.mlp.experts." in name:
            workspace.set(name, rng.normal(size=slot.shape).astype(np.float16))
    return workspace


def arrays_of(workspace: Workspace) -> dict[str, Array]:
    """Everything, by name."""
    evidence = Evidence(workspace.source(), HEADER)
    return {name: evidence.get("reader").read(info) for name, info in evidence.get("tensors").items()}


def stacked(workspace: Workspace, stacks: Callable[[dict[str, Array]], Stacks]) -> Workspace:
    """The experts of layer 1 in stacks, in place of what they were."""
    sick = Workspace(workspace.source())
    arrays = {name: array for name, array in arrays_of(workspace).items() if ".layers.1.mlp.experts." in name}
    for name in arrays:
        sick.drop(name)
    for name, array in stacks(arrays).items():
        sick.add(SHARD, f"model.layers.1.mlp.{name}", array)
    return sick


def whole(arrays: dict[str, Array], leaf: str) -> Array:
    """[experts, out, in] of single matrices."""
    return np.stack([arrays[f"model.layers.1.mlp.experts.{expert}.{leaf}.weight"] for expert in range(EXPERTS)])


def plan(workspace: Workspace, *, unsafe: bool = True) -> Plan:
    """What would be repaired, by headers alone."""
    return Planner(workspace.source(), HEADER, unsafe=unsafe).plan()


def assert_restored(found: Plan, workspace: Workspace, *, is_safe: bool) -> None:
    """One repair, a clean check, and the healthy tensors bit for bit."""
    assert [(step.repair, step.is_safe) for step in found.steps] == [("rename-experts", is_safe)], found.refused
    assert not found.after.causes
    mine, theirs = arrays_of(found.workspace), arrays_of(workspace)
    assert mine.keys() == theirs.keys()
    assert all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)


def test_fused_stacks_of_the_right_shape_are_renamed_safely() -> None:
    """Two shapes, two parameters, and no square among them."""
    workspace = healthy(fused=True)
    sick = stacked(workspace, lambda a: {"experts.w13_weight": a[FUSED[0]], "experts.w2_weight": a[FUSED[1]]})
    assert_restored(plan(sick, unsafe=False), workspace, is_safe=True)


def test_a_fused_stack_without_a_telling_name_is_a_judgement() -> None:
    """Its shape tells which parameter it is, and not which rows come first."""
    workspace = healthy(fused=True)
    sick = stacked(workspace, lambda a: {"experts.first": a[FUSED[0]], "experts.second": a[FUSED[1]]})
    assert not plan(sick, unsafe=False).steps
    assert_restored(plan(sick), workspace, is_safe=False)


def test_a_square_stack_is_a_judgement() -> None:
    """2 * width = hidden: nothing tells rows from columns."""
    config = config_of("qwen3_moe", moe_intermediate_size=HIDDEN // 2, mlp_only_layers=[])
    workspace = healthy(fused=True, config=config)
    sick = stacked(workspace, lambda a: {"experts.gate_up": a[FUSED[0]], "experts.down": a[FUSED[1]]})
    refused = plan(sick, unsafe=False)
    assert not refused.steps and any("square" in one.reason for one in refused.refused)
    assert_restored(plan(sick), workspace, is_safe=False)


def test_stacks_turned_round_are_refused() -> None:
    sick = stacked(
        healthy(fused=True),
        lambda a: {"experts.gate_up": a[FUSED[0]].swapaxes(1, 2), "experts.down": a[FUSED[1]].swapaxes(1, 2)},
    )
    found = plan(sick)
    assert not found.steps and any("do not fill" in one.reason for one in found.refused)


def test_separate_stacks_are_cut_where_names_tell() -> None:
    """Gate and up have one shape."""
    workspace = healthy(fused=False)
    sick = stacked(
        workspace,
        lambda a: {
            "expert_weights.gate_stack": whole(a, "gate_proj"),
            "expert_weights.up_stack": whole(a, "up_proj"),
            "expert_weights.down_stack": whole(a, "down_proj"),
        },
    )
    assert not plan(sick, unsafe=False).steps
    assert_restored(plan(sick), workspace, is_safe=False)


def test_names_that_say_nothing_leave_two_answers() -> None:
    sick = stacked(
        healthy(fused=False),
        lambda a: {
            "experts.first": whole(a, "gate_proj"),
            "experts.second": whole(a, "up_proj"),
            "experts.third": whole(a, "down_proj"),
        },
    )
    found = plan(sick)
    assert not found.steps and any("2 ways to assign the stacks fit" in one.reason for one in found.refused)


def test_a_name_that_contradicts_the_shape_is_refused() -> None:
    """The only stack that has the shape of gate and up says that it is down."""
    sick = stacked(healthy(fused=True), lambda a: {"experts.w2": a[FUSED[0]], "experts.w13": a[FUSED[1]]})
    found = plan(sick)
    assert not found.steps and any("names contradict" in one.reason for one in found.refused)


def test_a_joint_stack_is_cut_where_other_layers_have_single_experts() -> None:
    workspace = healthy(fused=False)
    sick = stacked(
        workspace,
        lambda a: {
            "experts.w13.weight": np.concatenate([whole(a, "gate_proj"), whole(a, "up_proj")], axis=1),
            "experts.w2.weight": whole(a, "down_proj"),
        },
    )
    found = plan(sick)
    assert_restored(found, workspace, is_safe=False)
    assert "first half" in str(found.steps[0].judgement)


@pytest.mark.parametrize("lost", ["gate_stack", "down_stack"])
def test_a_stack_that_is_missing_is_not_made_up(lost: str) -> None:
    """What is there would fill some parameters and leave others empty."""

    def stacks(arrays: dict[str, Array]) -> Stacks:
        every = {f"experts.{leaf}_stack": whole(arrays, f"{leaf}_proj") for leaf in ("gate", "up", "down")}
        return {name: array for name, array in every.items() if not name.endswith(lost)}

    assert not plan(stacked(healthy(fused=False), stacks)).steps


def test_another_number_of_experts_is_refused() -> None:
    sick = stacked(healthy(fused=True), lambda a: {"experts.gate_up": a[FUSED[0]][:3], "experts.down": a[FUSED[1]][:3]})
    found = plan(sick)
    assert not found.steps and any("no stacks of 4 experts" in one.reason for one in found.refused)


def test_single_experts_get_the_names_of_their_family() -> None:
    """A tool wrote Mixtral's experts as gate, up and down, where its loaders want w1, w3 and w2."""
    source = open_target(unpacked_golden() / "moe-mixtral-llmc-w4a16-g64")
    found = Planner(source, HEADER, unsafe=True).plan()
    assert [(step.repair, step.is_safe) for step in found.steps] == [("rename-tensor", False)]
    assert not found.after.causes
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    before, after = (Evidence(one, HEADER).get("modules") for one in (source, found.workspace.source()))
    for name, module in before.items():
        head, _, leaf = name.rpartition(".")
        renamed = f"{head}.{names[leaf]}" if module.expert is not None else name
        assert all(
            module.array(role).tobytes() == after[renamed].array(role).tobytes() for role in module.form.roles
        ), name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.experts.gate_up_proj", {"gate", "up"}),
        ("a.experts.w13", {"gate", "up"}),
        ("a.gate.w2_weight", {"down"}),
        ("a.experts.update", set()),
        ("a.experts.W3", {"up"}),
    ],
)
def test_meaning_of_names(name: str, said: set[str]) -> None:
    assert meaning(name) == said

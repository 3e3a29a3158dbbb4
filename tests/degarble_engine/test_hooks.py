"""The watcher: collapse is an alarm, a healthy model is not, and silence is said."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from degarble_engine.hooks import watch


class Block(nn.Module):  # type: ignore[misc]  # torch is not followed
    """Adds a linear to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(6)])


def test_a_healthy_model_gives_no_alarm() -> None:
    net = model()
    with watch(net) as watcher:
        net(torch.randn(4, 16))
    assert watcher.alarms() == [] and watcher.silence() is None
    assert not any(block.mlp._forward_hooks for block in net)


def test_a_collapse_is_named_against_neighbours_and_against_a_reference() -> None:
    net = model()
    with watch(net) as before:
        net(torch.randn(4, 16))
    with torch.no_grad():
        net[4].mlp.weight *= 0.01
        net[4].mlp.bias *= 0.01
    with watch(net) as watcher:
        net(torch.randn(4, 16))
    assert [alarm.block for alarm in watcher.alarms()] == ["4.mlp"]
    assert [alarm.block for alarm in watcher.alarms(before.spreads())] == ["4.mlp"]


def test_values_that_are_not_finite_are_named() -> None:
    net = model()
    with torch.no_grad():
        net[2].mlp.bias[0] = float("nan")
    with watch(net) as watcher:
        net(torch.randn(4, 16))
    assert watcher.alarms()[0].block == "2.mlp" and watcher.alarms()[0].value == 4


def test_a_compiled_model_says_that_it_is_silent() -> None:
    net = model()
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    with watch(net) as watcher:
        for _ in range(3):
            compiled(torch.randn(4, 16))
    said = watcher.silence(steps=3)
    assert said is not None and "were called" in said


def test_a_model_that_never_ran_is_not_healthy() -> None:
    with watch(model()) as watcher:
        pass
    assert watcher.silence() is not None


def test_a_model_without_such_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no module called"):
        watch(nn.Linear(2, 2))

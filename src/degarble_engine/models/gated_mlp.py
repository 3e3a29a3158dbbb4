"""down(act(gate(x)) · up(x)), with gate and up in one product."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from degarble_engine.compiled.kernels import loops_for
from degarble_engine.models.linear import Linear


class GatedMlp:
    """SwiGLU (Shazeer, 2020)."""

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self._gate_up, self._down = gate_up, down

    def __call__(self, hidden: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden]"""
        return self._down(gated(self._gate_up(hidden)))


def gated(gate_up: Tensor) -> Tensor:
    """SiLU of the first half of [n, 2 width], times the second."""
    loops = loops_for(gate_up)
    if loops is None:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up
    found = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
    loops.rows.gated(gate_up.contiguous().numpy(), found.numpy())
    return found

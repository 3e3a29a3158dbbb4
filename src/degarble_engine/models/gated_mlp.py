"""down(act(gate(x)) · up(x)), with gate and up in one product."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from degarble_engine.models.linear import Linear


class GatedMlp:
    """SwiGLU (Shazeer, 2020)."""

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self._gate_up, self._down = gate_up, down

    def __call__(self, hidden: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden]"""
        gate, up = self._gate_up(hidden).chunk(2, dim=-1)
        return self._down(F.silu(gate) * up)

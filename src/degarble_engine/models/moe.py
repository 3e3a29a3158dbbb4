"""Mixtures of experts: the choice of a router, and the sum over the experts it chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from degarble_engine.models.gated_mlp import GatedMlp
from degarble_engine.models.linear import Linear

Routing = tuple[Tensor, Tensor]
"""Weights and expert numbers, both [num_tokens, experts per token]."""
Router = Callable[[Tensor], Routing]


class SparseMlp:
    """Routed experts, and shared ones that every token passes."""

    def __init__(self, router: Router, experts: Sequence[GatedMlp], shared: GatedMlp | None = None) -> None:
        self._router, self._experts, self._shared = router, experts, shared

    def __call__(self, hidden: Tensor) -> Tensor:
        """[n, hidden] -> [n, hidden]. A token's experts are added in the order of their numbers, whatever the batch."""
        weights, chosen = self._router(hidden)
        total = torch.zeros_like(hidden)
        for expert in torch.unique(chosen).tolist():
            token, place = torch.where(chosen == expert)
            found = self._experts[expert](hidden[token]) * weights[token, place, None]
            total.index_add_(0, token, found.to(total.dtype))
        return total if self._shared is None else total + self._shared(hidden)


class SoftmaxRouter:
    """Qwen-MoE and Mixtral: the largest probabilities, perhaps scaled to a sum of 1."""

    def __init__(self, gate: Linear, top_k: int, *, is_normalised: bool, keeps_fp32: bool = False) -> None:
        """`keeps_fp32`: weights are not rounded to the dtype of the hidden state."""
        self._gate, self._top_k = gate, top_k
        self._is_normalised, self._keeps_fp32 = is_normalised, keeps_fp32

    def __call__(self, hidden: Tensor) -> Routing:
        """See Router."""
        probabilities = self._gate(hidden).float().softmax(-1)
        weights, chosen = probabilities.topk(self._top_k, dim=-1)
        if self._is_normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights if self._keeps_fp32 else weights.to(hidden.dtype), chosen

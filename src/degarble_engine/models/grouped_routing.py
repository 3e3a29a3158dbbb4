"""DeepSeek's routers: experts stand in groups, and only the best groups are asked.

V2   softmax scores; a group is as good as its best expert (or groups are not asked for); weights times a factor
V3   sigmoid scores; a bias is added for choosing and for nothing else; a group is as good as its best two; chosen
     weights, without the bias, are brought to a sum of 1 and multiplied by a factor

All of it in fp32: rounding the bias to bf16 changes the choice. Dropped groups get -inf, never 0, which a negative biased
score would lose against. Sources: DeepSeek-V3 inference/model.py; DeepSeek-V2 report, section 2.2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from degarble_engine.models.elementwise import in_whole_vectors
from degarble_engine.models.linear import Linear
from degarble_engine.models.moe import Routing


class GroupedRouter:
    """One layer's choice."""

    def __init__(self, config: Any, gate: Linear, bias: Tensor | None) -> None:
        """`gate` and `bias` [experts] in fp32; without a bias, V2's way."""
        self._gate, self._bias = gate, bias
        self._top_k, self._factor = int(config.num_experts_per_tok), float(config.routed_scaling_factor)
        method = getattr(config, "topk_method", None)
        is_grouped = bias is not None or method == "group_limited_greedy"
        self._groups = int(config.n_group or 1) if is_grouped else 1
        self._kept_groups = int(config.topk_group or 1) if is_grouped else 1
        self._is_normalised = bool(config.norm_topk_prob) and bias is not None

    def __call__(self, hidden: Tensor) -> Routing:
        """See Router."""
        logits = self._gate(hidden.float())
        scores = logits.softmax(-1) if self._bias is None else in_whole_vectors(torch.sigmoid, logits)
        biased = scores if self._bias is None else scores + self._bias
        chosen = self._of_best_groups(biased).topk(self._top_k, dim=-1).indices
        weights = scores.gather(1, chosen)
        if self._is_normalised:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * self._factor, chosen

    def _of_best_groups(self, biased: Tensor) -> Tensor:
        if self._groups == 1:
            return biased
        grouped = biased.unflatten(-1, (self._groups, -1))  # [n, groups, experts of a group]
        best = grouped.topk(1 if self._bias is None else 2, dim=-1).values.sum(-1)
        kept = best.topk(self._kept_groups, dim=-1).indices
        is_dropped = torch.ones_like(best, dtype=torch.bool).scatter(1, kept, False)
        return grouped.masked_fill(is_dropped[..., None], float("-inf")).flatten(1)

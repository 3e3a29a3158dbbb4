"""Mixtral: Llama with two of eight experts in every layer."""

from __future__ import annotations

from typing import ClassVar

from degarble_engine.models.causal_lm import FeedForward
from degarble_engine.models.gated_mlp import GatedMlp
from degarble_engine.models.llama import Llama
from degarble_engine.models.moe import SoftmaxRouter, SparseMlp
from degarble_engine.models.weight_store import WeightStore


class Mixtral(Llama):
    """See the module."""

    model_types: ClassVar[tuple[str, ...]] = ("mixtral",)

    def feed_forward(self, store: WeightStore, layer: int) -> FeedForward:
        """See CausalLM."""
        name, count = f"model.layers.{layer}.mlp", int(self.config.num_local_experts)
        gate = store.router(f"{name}.gate.weight", (count, self.hidden_size))
        experts = store.experts(f"{name}.experts", count, self.hidden_size, int(self.config.intermediate_size))
        router = SoftmaxRouter(gate, int(self.config.num_experts_per_tok), is_normalised=True, keeps_fp32=True)
        return SparseMlp(router, [GatedMlp(*pair) for pair in experts])

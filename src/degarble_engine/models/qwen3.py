"""Qwen3, dense and with experts: norms on the heads of q and k, no biases."""

from __future__ import annotations

from typing import ClassVar

from degarble_engine.models.causal_lm import AttentionBlock, FeedForward
from degarble_engine.models.gated_mlp import GatedMlp
from degarble_engine.models.grouped_attention import GroupedAttention
from degarble_engine.models.llama import Llama
from degarble_engine.models.moe import SoftmaxRouter, SparseMlp
from degarble_engine.models.weight_store import WeightStore


class Qwen3(Llama):
    """See the module."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3",)

    def attention(self, store: WeightStore, layer: int) -> AttentionBlock:
        """See CausalLM."""
        bias = bool(self.config.attention_bias)
        return GroupedAttention(
            store, self.config, layer, self.head_dim,
            qkv_bias=bias, output_bias=bias, has_head_norms=True, window=self.window(layer),
        )  # fmt: skip


class Qwen3Moe(Qwen3):
    """Experts in every layer that the config does not leave dense."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_moe",)

    def feed_forward(self, store: WeightStore, layer: int) -> FeedForward:
        """See CausalLM."""
        config = self.config
        if layer in config.mlp_only_layers or not config.num_experts or (layer + 1) % config.decoder_sparse_step:
            return super().feed_forward(store, layer)
        name, count = f"model.layers.{layer}.mlp", int(config.num_experts)
        gate = store.router(f"{name}.gate.weight", (count, self.hidden_size))
        experts = store.experts(f"{name}.experts", count, self.hidden_size, int(config.moe_intermediate_size))
        router = SoftmaxRouter(gate, int(config.num_experts_per_tok), is_normalised=bool(config.norm_topk_prob))
        return SparseMlp(router, [GatedMlp(*pair) for pair in experts])

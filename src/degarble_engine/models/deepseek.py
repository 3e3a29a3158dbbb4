"""DeepSeek-V2, V3, R1 and Kimi K2: latent attention, a dense prefix, routed and shared experts."""

from __future__ import annotations

from typing import ClassVar

import torch

from degarble.kvcache.geometry import Geometry
from degarble_engine.models.causal_lm import AttentionBlock, FeedForward
from degarble_engine.models.gated_mlp import GatedMlp
from degarble_engine.models.grouped_routing import GroupedRouter
from degarble_engine.models.latent_attention import LatentAttention
from degarble_engine.models.llama import Llama
from degarble_engine.models.moe import SparseMlp
from degarble_engine.models.weight_store import WeightStore


class Deepseek(Llama):
    """See the module. V2 and V3 differ in the router alone."""

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v2", "deepseek_v3", "kimi_k2")

    @property
    def rotary_lanes(self) -> int:
        """See CausalLM."""
        return int(self.config.qk_rope_head_dim)

    def geometry(self, num_blocks: int, block_size: int) -> Geometry:
        """See CausalLM: one latent row for all heads."""
        latent = int(self.config.kv_lora_rank + self.config.qk_rope_head_dim)
        return Geometry(num_blocks=num_blocks, block_size=block_size, num_layers=len(self.layers), latent=latent)

    def attention(self, store: WeightStore, layer: int) -> AttentionBlock:
        """See CausalLM."""
        return LatentAttention(store, self.config, layer)

    def feed_forward(self, store: WeightStore, layer: int) -> FeedForward:
        """See CausalLM."""
        config, name = self.config, f"model.layers.{layer}.mlp"
        if layer < config.first_k_dense_replace:
            return self.mlp(store, name, int(config.intermediate_size))
        count, width = int(config.n_routed_experts), int(config.moe_intermediate_size)
        gate = store.router(f"{name}.gate.weight", (count, self.hidden_size), torch.float32)
        bias_name = f"{name}.gate.e_score_correction_bias"
        has_bias = config.model_type != "deepseek_v2"
        bias = store.table(bias_name, (count,), torch.float32) if has_bias else None
        experts = store.experts(f"{name}.experts", count, self.hidden_size, width)
        shared = int(config.n_shared_experts or 0)
        return SparseMlp(
            GroupedRouter(config, gate, bias),
            [GatedMlp(*pair) for pair in experts],
            self.mlp(store, f"{name}.shared_experts", width * shared) if shared else None,
        )

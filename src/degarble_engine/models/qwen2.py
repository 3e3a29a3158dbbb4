"""Qwen2 and Qwen2.5, and the R1 distillates of them: biases on q, k and v."""

from __future__ import annotations

from typing import ClassVar

from degarble_engine.models.causal_lm import AttentionBlock
from degarble_engine.models.grouped_attention import GroupedAttention
from degarble_engine.models.llama import Llama
from degarble_engine.models.weight_store import WeightStore


class Qwen2(Llama):
    """See the module."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen2",)

    def attention(self, store: WeightStore, layer: int) -> AttentionBlock:
        """See CausalLM."""
        return GroupedAttention(store, self.config, layer, self.head_dim, qkv_bias=True, window=self.window(layer))

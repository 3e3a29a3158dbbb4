"""Attention with shared key heads (GQA; Ainslie et al., 2023), q, k and v in one product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from degarble_engine.models.attend import Attend, AttentionForm
from degarble_engine.models.causal_lm import Rotation
from degarble_engine.models.norm import rms_norm
from degarble_engine.models.rotary import turn_first
from degarble_engine.models.weight_store import WeightStore


class GroupedAttention:
    """One layer of Llama, Mistral, Qwen2 and Qwen3."""

    def __init__(
        self,
        store: WeightStore,
        config: Any,
        layer: int,
        head_dim: int,
        *,
        qkv_bias: bool = False,
        output_bias: bool = False,
        has_head_norms: bool = False,
        window: int | None = None,
    ) -> None:
        """`has_head_norms`: q and k are normalised by head before they turn. `window`: rows that a token sees."""
        name, hidden = f"model.layers.{layer}.self_attn", int(config.hidden_size)
        self._layer, self._head_dim = layer, head_dim
        self._form = AttentionForm(scale=head_dim**-0.5, window=window)
        self._heads, self._kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
        widths = [self._heads * head_dim, self._kv_heads * head_dim, self._kv_heads * head_dim]
        names = [f"{name}.{part}_proj" for part in "qkv"]
        self._qkv = store.linear(names, [(width, hidden) for width in widths], bias=qkv_bias)
        self._output = store.linear([f"{name}.o_proj"], [(hidden, widths[0])], bias=output_bias)
        self._eps = float(config.rms_norm_eps)
        gains = [store.vector(f"{name}.{part}_norm.weight", head_dim) for part in "qk"] if has_head_norms else []
        self._gains = gains

    def __call__(self, hidden: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """[n, hidden] -> [n, hidden]"""
        heads = self._qkv(hidden).unflatten(-1, (-1, self._head_dim))
        num_turned = self._heads + self._kv_heads
        value = heads[:, num_turned:]
        if self._gains:
            query, key = heads[:, :num_turned].split([self._heads, self._kv_heads], dim=1)
            heads = torch.cat(
                [rms_norm(query, self._gains[0], self._eps), rms_norm(key, self._gains[1], self._eps)], dim=1
            )
        query, key = turn_first(heads, num_turned, *rotation).split([self._heads, self._kv_heads], dim=1)
        found = attend(self._layer, query, {"k": key, "v": value}, self._form)
        return self._output(found.flatten(1))

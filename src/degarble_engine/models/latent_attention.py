"""Multi-head latent attention (MLA; DeepSeek-V2 report, section 2.1): the cache holds one latent for all heads.

    row of the cache     [norm(c), rot(k_pe)]        kv_lora_rank + qk_rope_head_dim lanes, for K and V of every head
    kv_b_proj            by heads: W_UK [nope, rank] over W_UV [value, rank]

    expanded   k_h = [W_UK c, k_pe], v_h = W_UV c       attention over heads; every row is expanded in every step
    absorbed   q_h = [W_UKᵀ q_nope, q_pe]               attention over the rows themselves, then W_UV on the result

Both give the same numbers up to rounding. Absorbed costs less for few new tokens over many rows, which is decoding.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from degarble_engine.models.attend import Attend, AttentionForm
from degarble_engine.models.causal_lm import Rotation
from degarble_engine.models.linear import Linear, filled
from degarble_engine.models.norm import rms_norm
from degarble_engine.models.rotary import turn_halves, turn_interleaved
from degarble_engine.models.weight_store import WeightStore

LATENT_EPS = 1e-6
"""Norms on latents have this whatever rms_norm_eps says. Source: DeepSeek's modeling_deepseek.py."""


class LatentAttention:
    """One layer of DeepSeek-V2, V3 and what descends from them."""

    is_absorbed = True
    """Which of the two forms is computed."""

    def __init__(self, store: WeightStore, config: Any, layer: int) -> None:
        self._row_multiple = store.row_multiple
        self._layer, name, hidden = layer, f"model.layers.{layer}.self_attn", int(config.hidden_size)
        heads, rank = int(config.num_attention_heads), int(config.kv_lora_rank)
        self._nope, self._rope = int(config.qk_nope_head_dim), int(config.qk_rope_head_dim)
        self._rank, self._value = rank, int(config.v_head_dim)
        bias = bool(config.attention_bias)
        self._query = _query(store, config, name, heads * (self._nope + self._rope))
        self._latent = store.linear([f"{name}.kv_a_proj_with_mqa"], [(rank + self._rope, hidden)], bias=bias)
        self._gain = store.vector(f"{name}.kv_a_layernorm.weight", rank)
        expansion = store.table(f"{name}.kv_b_proj.weight", (heads * (self._nope + self._value), rank))
        w_uk, w_uv = expansion.unflatten(0, (heads, -1)).split([self._nope, self._value], dim=1)
        self._w_uk = w_uk.contiguous()  # [heads, nope, rank]
        self._w_uv = w_uv.transpose(1, 2).contiguous()  # [heads, rank, value]
        self._output = store.linear([f"{name}.o_proj"], [(hidden, heads * self._value)], bias=bias)
        self._turn = turn_interleaved if getattr(config, "rope_interleave", True) else turn_halves
        scale = softmax_scale(config, self._nope + self._rope)
        self._absorbed = AttentionForm(scale=scale, value_lanes=rank)
        self._expanded = AttentionForm(scale=scale, expand=self._keys_and_values)

    def __call__(self, hidden: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """[n, hidden] -> [n, hidden]"""
        query = self._query(hidden).unflatten(-1, (-1, self._nope + self._rope))
        plain, turning = query.split([self._nope, self._rope], dim=-1)
        turned = self._turn(turning, *rotation)
        compressed, shared = self._latent(hidden).split([self._rank, self._rope], dim=-1)
        compressed = rms_norm(compressed, self._gain, LATENT_EPS)
        rows = {"latent": torch.cat([compressed, self._turn(shared[:, None], *rotation)[:, 0]], dim=-1)}
        if self.is_absorbed:
            absorbed = self._by_head(plain, self._w_uk)
            mixed = attend(self._layer, torch.cat([absorbed, turned], -1), rows, self._absorbed)
            found = self._by_head(mixed, self._w_uv)
        else:
            found = attend(self._layer, torch.cat([plain, turned], -1), rows, self._expanded)
        return self._output(found.flatten(1))

    def _by_head(self, rows: Tensor, matrices: Tensor) -> Tensor:
        """[n, heads, a] by each head's own [a, b]; see `linear` for the rows that are filled up."""
        wide = filled(rows, self._row_multiple).transpose(0, 1).contiguous()
        return torch.bmm(wide, matrices).transpose(0, 1)[: rows.shape[0]]

    def _keys_and_values(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        compressed, turned = latent.split([self._rank, self._rope], dim=-1)
        key = torch.einsum("mr,hdr->mhd", compressed, self._w_uk)
        shared = turned[:, None].expand(-1, key.shape[1], -1)
        return torch.cat([key, shared], -1), torch.einsum("mr,hrv->mhv", compressed, self._w_uv)


class _LowRankQuery:
    """q_b(norm(q_a(x)))"""

    def __init__(self, first: Linear, gain: Tensor, second: Linear) -> None:
        self._first, self._gain, self._second = first, gain, second

    def __call__(self, hidden: Tensor) -> Tensor:
        return self._second(rms_norm(self._first(hidden), self._gain, LATENT_EPS))


def _query(store: WeightStore, config: Any, name: str, width: int) -> Linear | _LowRankQuery:
    hidden, rank = int(config.hidden_size), config.q_lora_rank
    if rank is None:
        return store.linear([f"{name}.q_proj"], [(width, hidden)])
    first = store.linear([f"{name}.q_a_proj"], [(int(rank), hidden)], bias=bool(config.attention_bias))
    gain = store.vector(f"{name}.q_a_layernorm.weight", int(rank))
    return _LowRankQuery(first, gain, store.linear([f"{name}.q_b_proj"], [(width, int(rank))]))


def softmax_scale(config: Any, head_dim: int) -> float:
    """1 / sqrt(head_dim), times mscale² where YaRN stretches positions: (0.1 · mscale_all_dim · ln factor + 1)²."""
    parameters = config.rope_parameters
    amount = parameters.get("mscale_all_dim") or 0.0
    factor = float(parameters.get("factor") or 1.0)
    if parameters.get("rope_type", "default") == "default" or not amount or factor <= 1:
        return float(head_dim**-0.5)
    return float(head_dim**-0.5 * (0.1 * amount * math.log(factor) + 1.0) ** 2)

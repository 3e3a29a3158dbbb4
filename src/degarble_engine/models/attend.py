"""What a model asks of its cache: keep these rows, and attend from these queries over all rows of their requests.

Tokens of all requests of a step lie in one flat batch, so no model knows where a request begins. The cache does: it
writes the new rows, finds the old ones, and applies the causal mask and the window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F

Rows = Mapping[str, Tensor]
"""`k` and `v` [num_tokens, num_kv_heads, head_dim], or `latent` [num_tokens, latent]."""
Expand = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Latent rows [m, latent] -> K [m, num_heads, head_dim] and V [m, num_heads, value_dim]."""


class AttentionForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a layer attends, the same in every step."""

    scale: float
    window: int | None = None
    """A token sees that many rows, itself included; None: all."""
    value_lanes: int | None = None
    """Of latent rows, which are key and value in one, the first that are V."""
    expand: Expand | None = None
    """Makes K and V of latent rows instead."""


class Attend(Protocol):
    """One step's view of the cache."""

    def __call__(self, layer: int, query: Tensor, rows: Rows, form: AttentionForm) -> Tensor:
        """[num_tokens, num_heads, head_dim] -> [num_tokens, num_heads, value_dim]; writes `rows` first."""


def attention(query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None = None) -> Tensor:
    """Causal attention of one request's last n tokens over its m rows.

    query [n, num_heads, head_dim], key [m, num_kv_heads, head_dim], value [m, num_kv_heads, value_dim]
    -> [n, num_heads, value_dim]
    """
    num_new, num_rows = query.shape[0], key.shape[0]
    mask = None
    if num_new > 1 or (window is not None and window < num_rows):
        mask = causal_mask(num_new, num_rows, window, query.device)
    found = F.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        attn_mask=mask,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return found[0].transpose(0, 1)


def causal_mask(num_new: int, num_rows: int, window: int | None, device: torch.device) -> Tensor:
    """[num_new, num_rows], true where token num_rows - num_new + i may see row j."""
    position = torch.arange(num_rows - num_new, num_rows, device=device)[:, None]
    row = torch.arange(num_rows, device=device)[None]
    mask = row <= position
    return mask if window is None else mask & (row > position - window)

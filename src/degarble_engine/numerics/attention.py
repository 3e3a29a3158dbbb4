"""Attention as the family computes it, with a place to listen and a place to change what the cache would hold.

transformers lets attention be exchanged by name. The one registered here calls the family's own plain form, so that
soft caps and sinks stay its own, after showing queries and keys to whoever listens on the module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

IMPLEMENTATION = "degarble_walk"
LISTENER = "walk_listener"
CACHE_FILTER = "walk_cache_filter"
COMPUTE = "walk_compute"
"""Computes attention in the family's place: (module, query, key, value, mask, scaling=…, …) -> output."""
LONG_TOKENS = 1024
"""From here on attention that nobody listens to is computed without the [tokens, tokens] matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTap:
    """One call of attention; queries and keys carry their rotation already."""

    query: Tensor  # [batch, num_heads, tokens, head_dim]
    key: Tensor  # [batch, num_kv_heads, tokens, head_dim]
    value: Tensor  # [batch, num_kv_heads, tokens, value_dim]
    scaling: float
    mask: Tensor | None
    output: Tensor  # [batch, tokens, num_heads, value_dim]

    def logits(self) -> Tensor:
        """q·k before scaling and mask. [batch, num_heads, tokens, tokens]"""
        shared = self.query.shape[1] // self.key.shape[1]
        return self.query @ self.key.repeat_interleave(shared, dim=1).transpose(2, 3)


Listener = Callable[[AttentionTap], None]
CacheFilter = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(key, value) -> what a quantised cache would give back of them."""


def walk_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The family's eager attention on (possibly filtered) keys and values."""
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    cache_filter: CacheFilter | None = getattr(module, CACHE_FILTER, None)
    if cache_filter is not None:
        key, value = cache_filter(key, value)
    listener: Listener | None = getattr(module, LISTENER, None)
    replacement: Callable[..., Tensor] | None = getattr(module, COMPUTE, None)
    if replacement is not None:
        return replacement(module, query, key, value, attention_mask, scaling=factor, **kwargs), None
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    is_long = listener is None and query.shape[2] > LONG_TOKENS and not kwargs.get("softcap") and "s_aux" not in kwargs
    compute = sdpa_attention_forward if eager is None or is_long else eager
    output, weights = compute(module, query, key, value, attention_mask, scaling=factor, **kwargs)
    if listener is not None:
        tap = AttentionTap(query=query, key=key, value=value, scaling=factor, mask=attention_mask, output=output)
        listener(tap)
    return output, weights


def register() -> None:
    """Make the name known to transformers; harmless when repeated."""
    ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, walk_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, eager_mask)

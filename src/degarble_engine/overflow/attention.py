"""Attention in the arithmetic of an engine, a block of queries at a time, so that no [tokens, tokens] matrix is held.

s = q.k          rounded to `qk`, also before the scaling, as eager code does
p = e^(s - max)  accumulated as sum_j p_j v_j in `pv_acc`; divided by sum_j p_j only at the end where that is fp16:
                 so it is in FlashAttention kernels, and the sum over a long context is what overflows there
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from degarble.errors import TargetError
from degarble_engine.overflow.ledger import NOT_FINITE, Ledger
from degarble_engine.overflow.switches import Switches, rounded

BLOCK_ELEMENTS = 1 << 20
"""Scores in memory at once: 4 MiB stay in the cache; 64 would be mapped anew, page by page, for each of twenty steps."""
SUM_STEP = 64
"""Keys whose products are summed in fp32 before the running sum is rounded: a tile of the kernels."""
KNOWN = frozenset({"dropout", "softcap", "s_aux", "sliding_window", "is_causal", "position_ids", "use_cache",
                   "output_attentions", "cache_position", "past_key_values", "past_key_value", "attention_mask",
                   "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "position_embeddings"})  # fmt: skip
"""What attention is called with; anything else that is set would change the result."""


@dataclass(frozen=True, slots=True)
class Attention:
    """One lane's attention."""

    switches: Switches
    ledger: Ledger

    def run(
        self, name: str, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, **kwargs: Any
    ) -> Tensor:
        """[batch, tokens, num_heads, value_dim]. Raises TargetError for attention of a form that is not known."""
        strange = sorted(one for one, given in kwargs.items() if one not in KNOWN and given is not None)
        if strange:
            raise TargetError(f"{name}: attention with {', '.join(strange)} cannot be simulated")
        key, value = (self._cached(one, name, place) for one, place in ((key, "key"), (value, "value")))
        shared = query.shape[1] // key.shape[1]
        key, value = (one.repeat_interleave(shared, dim=1) for one in (key, value))
        parts, before, after = [], [], []
        for start, end in self._blocks(query, key):
            seen = _visible(mask, start, end, query, key)
            keys = _reach(seen)
            seen = seen[..., keys]
            raw = query[:, :, start:end] @ key[:, :, keys].transpose(2, 3)
            before.append(_largest(raw, seen))
            after.append(before[-1] * scaling)
            scores = rounded(rounded(raw, self.switches.qk) * scaling, self.switches.qk)
            capped = _capped(scores, kwargs.get("softcap"))
            parts.append(self._weighted(capped, seen, value[:, :, keys], kwargs.get("s_aux"), name))
        self._note_scores(torch.cat(before, 1), torch.cat(after, 1), name)
        output = torch.cat(parts, 2)
        self.ledger.peak(output, name, "P.V")
        return self.ledger.finite(output, output, name, "P.V accumulator").transpose(1, 2).contiguous()

    def _cached(self, values: Tensor, name: str, place: str) -> Tensor:
        return self.ledger.finite(rounded(values, self.switches.kv), values, name, f"{place} in the cache")

    def _blocks(self, query: Tensor, key: Tensor) -> Iterator[tuple[int, int]]:
        rows = max(1, BLOCK_ELEMENTS // (query.shape[0] * query.shape[1] * key.shape[2]))
        for start in range(0, query.shape[2], rows):
            yield start, min(start + rows, query.shape[2])

    def _note_scores(self, before: Tensor, after: Tensor, name: str) -> None:
        self.ledger.peak_of_tokens(before, name, "q.k before scaling")
        self.ledger.peak_of_tokens(after, name, "q.k after scaling")
        limit = torch.finfo(self.switches.qk).max if self.switches.qk is not torch.float32 else math.inf
        self.ledger.note(before > limit, before, name, "q.k", NOT_FINITE)

    def _weighted(self, scores: Tensor, seen: Tensor, value: Tensor, sinks: Tensor | None, name: str) -> Tensor:
        """Softmax and the sum over values. [batch, heads, block, value_dim]"""
        scores = scores.nan_to_num(0.0, 3e38, -3e38).masked_fill(~seen, -math.inf)
        top = scores.amax(-1, keepdim=True).clamp_min(-3e38)
        sink = None if sinks is None else sinks.reshape(1, -1, 1, 1)
        top = top if sink is None else torch.maximum(top, sink)
        weights = (scores - top - self.switches.pv_offset).exp()
        total = weights.sum(-1, keepdim=True)
        total = total if sink is None else total + (sink - top - self.switches.pv_offset).exp()
        if self.switches.pv_acc is torch.float16:
            return _half_sum(rounded(weights, torch.float16), value) / total
        return rounded(rounded(weights / total, self.switches.activation) @ value, self.switches.activation)


def _half_sum(weights: Tensor, value: Tensor) -> Tensor:
    """sum_j p_j v_j with a running sum in fp16."""
    running = torch.zeros(*weights.shape[:-1], value.shape[-1])
    for start in range(0, value.shape[2], SUM_STEP):
        part = weights[..., start : start + SUM_STEP] @ value[:, :, start : start + SUM_STEP]
        running = rounded(running + part, torch.float16)
    return running


def _visible(mask: Tensor | None, start: int, end: int, query: Tensor, key: Tensor) -> Tensor:
    """Which keys a block of queries sees, [batch or 1, heads or 1, block, keys] bool."""
    if mask is None:
        rows = torch.arange(start, end)[:, None] + key.shape[2] - query.shape[2]
        return (torch.arange(key.shape[2])[None] <= rows)[None, None]
    part = mask[:, :, start:end, : key.shape[2]]
    return part if part.dtype is torch.bool else part > -1.0


def _reach(seen: Tensor) -> slice:
    """The keys that a block of queries sees, from the first to the last; from a whole tile on, so that sums round alike."""
    there = seen.flatten(0, -2).any(0).nonzero()
    if not len(there):
        return slice(0, 1)
    return slice(int(there[0]) // SUM_STEP * SUM_STEP, int(there[-1]) + 1)


def _largest(scores: Tensor, seen: Tensor) -> Tensor:
    """Largest |q.k| that counts, for every query. [batch, block]"""
    return scores.abs().masked_fill(~seen, 0.0).amax((1, 3))


def _capped(scores: Tensor, softcap: float | None) -> Tensor:
    return scores if not softcap else (scores / softcap).tanh() * softcap

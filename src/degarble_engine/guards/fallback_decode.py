"""One step decoded again by another road: fp32, dense weights, plain tensors instead of the paged cache.

The published "fallback decoding" decodes *text* anew (`bytes(ids).decode`), which is no decoder at all, and which exact
streams make needless (docs/explanation/streaming.md). What can be decoded again is a step: where a row's logits are
damaged, the whole sequence goes through the reference once, its last logits take the damaged ones' place, and the rows of
the cache, which may hold the damage, are computed afresh.

It costs a second model in memory, opened at the start so that the memory is known then, and a pass over the whole
sequence. Each answer has one such step: damage that comes back is not transient, and the answer ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from degarble_engine.models.causal_lm import CausalLM
from degarble_engine.models.plain_cache import PlainCache

MAX_TOKENS = 8192
"""Longer sequences are not decoded again: the pass would hold up all others."""
CHUNK = 512


class FallbackDecode:
    """The reference, and how often it was asked."""

    def __init__(self, reference: CausalLM) -> None:
        self._reference = reference
        self.num_steps = 0

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int], count: int) -> Tensor | None:
        """[count, vocab] after the last `count` tokens; None if it would take too long, or is not finite either."""
        if len(token_ids) > MAX_TOKENS:
            return None
        self.num_steps += 1
        cache = PlainCache()
        parts = []
        for start in range(0, len(token_ids), CHUNK):
            ids = torch.tensor(token_ids[start : start + CHUNK])
            positions = torch.arange(start, start + len(ids))
            parts.append(self._reference.hidden(ids, positions, cache.begin([("again", len(ids))])))
        found = self._reference.logits(torch.cat(parts)[-count:]).cpu()
        return found if bool(found.isfinite().all()) else None

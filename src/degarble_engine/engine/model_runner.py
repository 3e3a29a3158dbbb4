"""One step on the tensors: copies that the block manager asked for, the forward pass, logits where a token follows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from degarble.kvcache.block_manager import BlockManager
from degarble_engine.engine.paged_attend import PagedAttend, Span
from degarble_engine.engine.pool import PagedKVCache
from degarble_engine.engine.scheduler import Scheduled
from degarble_engine.models.causal_lm import CausalLM


class ModelRunner:
    """A model on its paged cache."""

    def __init__(
        self, model: CausalLM, cache: PagedKVCache, manager: BlockManager, *, is_batch_invariant: bool = True
    ) -> None:
        self.model, self.cache, self._manager = model, cache, manager
        self._is_batch_invariant = is_batch_invariant

    def run(self, parts: Sequence[Scheduled]) -> list[Tensor]:
        """Logits [1 + drafts, vocab] in fp32 of every part that reaches its end; [0, vocab] of the others."""
        for part in parts:
            self.cache.copy_blocks(part.work.copies)
        ids: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        counts: list[int] = []
        row = 0
        for part in parts:
            work = part.work
            known = self._manager.sequence(work.request).token_ids
            ids += known[work.start : work.end]
            positions += range(work.start, work.end)
            row += work.end - work.start
            count = 1 + part.num_drafts if part.is_sampled else 0
            wanted += range(row - count, row)
            counts.append(count)
        attend = PagedAttend(
            self.cache, [self._span(part) for part in parts], is_batch_invariant=self._is_batch_invariant
        )
        hidden = self.model.hidden(torch.tensor(ids), torch.tensor(positions), attend)
        logits = self.model.logits(hidden[torch.tensor(wanted, dtype=torch.long)])
        return list(logits.split(counts))

    def _span(self, part: Scheduled) -> Span:
        sequence = self._manager.sequence(part.work.request)
        first = sequence.start_of(sequence.num_evicted) if sequence.num_evicted else 0
        return Span(part.work.slots, first, sequence.slots(first, part.work.end))

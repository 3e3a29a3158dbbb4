"""One step on the tensors: copies that the block manager asked for, the forward pass, logits where a token follows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from degarble.kvcache.block_manager import BlockManager
from degarble_engine.engine.compiled_pages import CompiledPages
from degarble_engine.engine.paged_attend import PagedAttend, Span
from degarble_engine.engine.pool import PagedKVCache
from degarble_engine.engine.scheduler import Scheduled
from degarble_engine.engine.slot_book import SlotBook
from degarble_engine.models.causal_lm import CausalLM


class ModelRunner:
    """A model on its paged cache."""

    def __init__(
        self, model: CausalLM, cache: PagedKVCache, manager: BlockManager, *, is_batch_invariant: bool = True
    ) -> None:
        self.model, self.cache, self._manager = model, cache, manager
        self._is_batch_invariant = is_batch_invariant
        self.book = SlotBook(manager)
        self.pages = CompiledPages.of(cache)
        """None: attention by torch."""

    def run(self, parts: Sequence[Scheduled]) -> list[Tensor]:
        """Logits [1 + drafts, vocab] in fp32 of every part that reaches its end; [0, vocab] of the others."""
        if self.pages is not None:
            self.pages.use_threads()
        for part in parts:
            self.cache.copy_blocks(part.work.copies)
        spans = [Span(part.work.end - part.work.start, *self.book.slots(part)) for part in parts]
        ids = [one for part in parts for one in self._ids(part)]
        missing = -len(ids) % self.model.row_multiple
        attend = PagedAttend(self.cache, spans, pages=self.pages, is_batch_invariant=self._is_batch_invariant)
        hidden = self.model.hidden(torch.tensor(ids + [0] * missing), _positions(parts, missing), attend)
        counts = [1 + part.num_drafts if part.is_sampled else 0 for part in parts]
        logits = self.model.logits(hidden[_last_rows(spans, counts).to(hidden.device)]).cpu()
        self.book.forget_all_but(self._manager.sequences.keys())
        return list(logits.split(counts))

    def _ids(self, part: Scheduled) -> list[int]:
        return self._manager.sequence(part.work.request).token_ids[part.work.start : part.work.end]


def _positions(parts: Sequence[Scheduled], missing: int) -> Tensor:
    """Of every token; 0 for rows that fill the batch up, which are written nowhere and see nothing."""
    found = [np.arange(part.work.start, part.work.end) for part in parts]
    return torch.from_numpy(np.concatenate([*found, np.zeros(missing, np.int64)]))


def _last_rows(spans: Sequence[Span], counts: Sequence[int]) -> Tensor:
    """Rows of the flat batch that a token is sampled after: the last `counts` of each span."""
    ends = np.cumsum([span.num_new for span in spans])
    found = [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return torch.from_numpy(np.concatenate(found).astype(np.int64))

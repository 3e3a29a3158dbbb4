"""One step's view of the paged cache, as models ask for it: write the new rows, attend over each request's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from degarble_engine.engine.compiled_pages import CompiledPages, Places
from degarble_engine.engine.pool import PagedKVCache, SlotIndex
from degarble_engine.engine.slot_book import Slots
from degarble_engine.engine.split_attention import SPLIT, split_attention
from degarble_engine.models.attend import AttentionForm, Rows, attention
from degarble_engine.models.plain_cache import keys_and_values


class Span(msgspec.Struct, frozen=True):
    """One request's part of a step."""

    num_new: int
    first: int
    """Position of the first row that is still held; earlier ones left the window."""
    slots: Slots
    """Of positions [first, end), the new ones included."""

    @property
    def end(self) -> int:
        """Position behind the last row."""
        return self.first + len(self.slots)


class _Group(msgspec.Struct, frozen=True):
    """Requests with equally many new tokens, whose rows fill equally many splits."""

    members: list[int]
    tokens: Tensor
    """[requests, new tokens] rows of the flat batch"""
    index: SlotIndex
    """[requests · rows]; filled up with a slot whose row is masked."""
    num_rows: int
    positions: Tensor
    """[requests, rows] position of each row; past the end where it is filled up."""
    at: Tensor
    """[requests, new tokens] position of each new token."""


class PagedAttend:
    """See Attend. Compiled loops where there are any, else attention in fixed splits, else the library's own."""

    def __init__(
        self,
        cache: PagedKVCache,
        spans: Sequence[Span],
        *,
        pages: CompiledPages | None = None,
        is_batch_invariant: bool = True,
    ) -> None:
        """`is_batch_invariant`: splits, where nothing is compiled; else one request at a time.

        The flat batch may have rows behind those of the spans, which fill it up: they see nothing.
        """
        self._cache, self._spans, self._pages = cache, spans, pages
        self._starts = np.cumsum([0, *(span.num_new for span in spans)])
        self._is_invariant = is_batch_invariant
        new = np.concatenate([span.slots[len(span.slots) - span.num_new :] for span in spans])
        self._places = _places(spans, new, self._starts) if pages is not None else None
        self._new = cache.index(new)
        self._masks: dict[tuple[int, int | None], Tensor] = {}

    @cached_property
    def _groups(self) -> list[_Group]:
        alike: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, span in enumerate(self._spans):
            alike[span.num_new, -(-span.end // SPLIT)].append(number)
        return [self._group(members, new, splits * SPLIT) for (new, splits), members in alike.items()]

    @cached_property
    def _own(self) -> list[SlotIndex]:
        return [self._cache.index(span.slots) for span in self._spans]

    def __call__(self, layer: int, query: Tensor, rows: Rows, form: AttentionForm) -> Tensor:
        """See Attend."""
        if self._pages is not None and form.expand is None:
            assert self._places is not None
            self._pages.write(layer, rows, self._places)
            return self._pages.attend(layer, query, self._places, form)
        num_real = int(self._starts[-1])
        self._cache.write(layer, {name: given[:num_real] for name, given in rows.items()}, self._new)
        found = self._by_groups(layer, query, form) if self._is_invariant else self._one_by_one(layer, query, form)
        return found if len(found) == len(query) else F.pad(found, (0, 0, 0, 0, 0, len(query) - len(found)))

    def _by_groups(self, layer: int, query: Tensor, form: AttentionForm) -> Tensor:
        outputs: list[tuple[Tensor, Tensor]] = []
        for number, group in enumerate(self._groups):
            held = self._held(layer, group.index, query.dtype)
            key, value = keys_and_values(held, form)
            count = len(group.members)
            key, value = key.unflatten(0, (count, group.num_rows)), value.unflatten(0, (count, group.num_rows))
            found = split_attention(query[group.tokens], key, value, self._mask(number, form.window), form.scale)
            outputs.append((group.tokens.flatten(), found.flatten(0, 1)))
        result = outputs[0][1].new_empty(int(self._starts[-1]), *outputs[0][1].shape[1:])
        for tokens, found in outputs:
            result[tokens] = found
        return result

    def _one_by_one(self, layer: int, query: Tensor, form: AttentionForm) -> Tensor:
        parts = []
        for number, index in enumerate(self._own):
            key, value = keys_and_values(self._held(layer, index, query.dtype), form)
            own = query[self._starts[number] : self._starts[number + 1]]
            parts.append(attention(own, key, value, scale=form.scale, window=form.window))
        return torch.cat(parts)

    def _held(self, layer: int, index: SlotIndex, dtype: torch.dtype) -> dict[str, Tensor]:
        return {name: rows.to(dtype) for name, rows in self._cache.gather(layer, index).items()}

    def _mask(self, number: int, window: int | None) -> Tensor:
        known = self._masks.get((number, window))
        if known is None:
            group = self._groups[number]
            row, at = group.positions[:, None], group.at[:, :, None]
            known = row <= at if window is None else (row <= at) & (row > at - window)
            self._masks[number, window] = known
        return known

    def _group(self, members: list[int], num_new: int, num_rows: int) -> _Group:
        """Every request's rows stand at their positions, so that a split holds the same ones whatever left the window."""
        slots = np.empty((len(members), num_rows), np.int64)
        positions = torch.full((len(members), num_rows), torch.iinfo(torch.int64).max)
        ends = torch.tensor([self._spans[number].end for number in members])
        starts = torch.from_numpy(self._starts[members])
        for place, number in enumerate(members):
            span = self._spans[number]
            slots[place] = span.slots[0]
            slots[place, span.first : span.end] = span.slots
            positions[place, span.first : span.end] = torch.arange(span.first, span.end)
        steps = torch.arange(num_new)
        at, tokens = ends[:, None] - num_new + steps, starts[:, None] + steps
        index, device = self._cache.index(slots.reshape(-1)), self._cache.device
        return _Group(members, tokens.to(device), index, num_rows, positions.to(device), at.to(device))


def _places(spans: Sequence[Span], new: Slots, starts: Slots) -> Places:
    counts = np.array([span.num_new for span in spans])
    lengths = np.array([len(span.slots) for span in spans])
    firsts = np.array([span.first for span in spans])
    begins = np.repeat(np.cumsum(lengths) - lengths - firsts, counts)
    ends = np.repeat(firsts + lengths - counts - starts[:-1], counts) + np.arange(len(new)) + 1
    tokens = np.stack([begins, np.repeat(firsts, counts), ends])
    return Places(new, np.concatenate([span.slots for span in spans]), tokens)

"""One step's view of the paged cache, as models ask for it: write the new rows, attend over each request's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

from degarble_engine.engine.pool import PagedKVCache, SlotIndex
from degarble_engine.engine.split_attention import SPLIT, split_attention
from degarble_engine.models.attend import AttentionForm, Rows, attention
from degarble_engine.models.plain_cache import keys_and_values


class Span(msgspec.Struct, frozen=True):
    """One request's part of a step."""

    new_slots: Sequence[int]
    """Where its new rows go."""
    first: int
    """Position of the first row that is still held; earlier ones left the window."""
    slots: Sequence[int]
    """Slots of positions [first, end), the new ones included."""


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
    """See Attend. `is_batch_invariant`: attention in fixed splits, else the library's own, one request at a time."""

    def __init__(self, cache: PagedKVCache, spans: Sequence[Span], *, is_batch_invariant: bool = True) -> None:
        self._cache, self._spans = cache, spans
        self._new = cache.index([slot for span in spans for slot in span.new_slots])
        starts = [0]
        for span in spans:
            starts.append(starts[-1] + len(span.new_slots))
        self._starts = starts
        self._is_invariant = is_batch_invariant
        self._groups = self._grouped() if is_batch_invariant else []
        self._own = [] if is_batch_invariant else [cache.index(span.slots) for span in spans]
        self._masks: dict[tuple[int, int | None], Tensor] = {}

    def __call__(self, layer: int, query: Tensor, rows: Rows, form: AttentionForm) -> Tensor:
        """See Attend."""
        self._cache.write(layer, rows, self._new)
        if not self._is_invariant:
            return self._one_by_one(layer, query, form)
        outputs: list[tuple[Tensor, Tensor]] = []
        for number, group in enumerate(self._groups):
            held = self._held(layer, group.index, query.dtype)
            key, value = keys_and_values(held, form)
            count = len(group.members)
            key, value = key.unflatten(0, (count, group.num_rows)), value.unflatten(0, (count, group.num_rows))
            found = split_attention(query[group.tokens], key, value, self._mask(number, form.window), form.scale)
            outputs.append((group.tokens.flatten(), found.flatten(0, 1)))
        result = outputs[0][1].new_empty(query.shape[0], *outputs[0][1].shape[1:])
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

    def _grouped(self) -> list[_Group]:
        alike: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, span in enumerate(self._spans):
            alike[len(span.new_slots), -(-(span.first + len(span.slots)) // SPLIT)].append(number)
        return [self._group(members, new, splits * SPLIT) for (new, splits), members in alike.items()]

    def _group(self, members: list[int], num_new: int, num_rows: int) -> _Group:
        """Every request's rows stand at their positions, so that a split holds the same ones whatever left the window."""
        slots: list[int] = []
        positions = torch.full((len(members), num_rows), torch.iinfo(torch.int64).max)
        at = torch.empty(len(members), num_new, dtype=torch.long)
        tokens = torch.empty(len(members), num_new, dtype=torch.long)
        for place, number in enumerate(members):
            span = self._spans[number]
            end = span.first + len(span.slots)
            slots += [span.slots[0]] * span.first + list(span.slots) + [span.slots[0]] * (num_rows - end)
            positions[place, span.first : end] = torch.arange(span.first, end)
            at[place] = torch.arange(end - num_new, end)
            tokens[place] = torch.arange(self._starts[number], self._starts[number + 1])
        return _Group(members, tokens, self._cache.index(slots), num_rows, positions, at)

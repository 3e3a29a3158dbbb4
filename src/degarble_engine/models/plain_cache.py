"""The oracle of every paged cache: each request's rows in plain tensors that grow."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from degarble_engine.models.attend import AttentionForm, Rows, attention


class PlainCache:
    """Rows of all layers of any number of requests."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int, str], Tensor] = {}
        self._step: list[tuple[str, int]] = []

    def begin(self, step: Sequence[tuple[str, int]]) -> PlainCache:
        """The next forward has these requests, in order, with so many new tokens each."""
        self._step = list(step)
        return self

    def __call__(self, layer: int, query: Tensor, rows: Rows, form: AttentionForm) -> Tensor:
        """See Attend."""
        outputs, start = [], 0
        for request, count in self._step:
            kept = {name: self._grown(request, layer, name, new[start : start + count]) for name, new in rows.items()}
            key, value = keys_and_values(kept, form)
            own = query[start : start + count]
            outputs.append(attention(own, key, value, scale=form.scale, window=form.window))
            start += count
        return torch.cat(outputs)

    def drop(self, request: str) -> None:
        """Forget a request."""
        for key in [key for key in self._rows if key[0] == request]:
            del self._rows[key]

    def _grown(self, request: str, layer: int, name: str, new: Tensor) -> Tensor:
        key = (request, layer, name)
        known = self._rows.get(key)
        self._rows[key] = new if known is None else torch.cat([known, new])
        return self._rows[key]


def keys_and_values(rows: Rows, form: AttentionForm) -> tuple[Tensor, Tensor]:
    """K [m, heads, dim] and V [m, heads, value dim] of one request's rows, latent or not."""
    latent = rows.get("latent")
    if latent is None:
        return rows["k"], rows["v"]
    if form.expand is not None:
        return form.expand(latent)
    return latent[:, None], latent[:, None, : form.value_lanes]

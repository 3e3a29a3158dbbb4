"""One walk, several caches: what each costs in every layer on a clean input, and at the end when all layers have it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from degarble_engine.kv_precision.cache_form import CacheForm
from degarble_engine.numerics.attention import CACHE_FILTER
from degarble_engine.numerics.divergence import Divergence, divergence
from degarble_engine.numerics.tap import is_attention
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel

EXACT_DB = 200.0
"""Said of outputs that are equal."""
Filter = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLoss:
    """Signal to noise of the attention's output on the exact input, in dB."""

    layer: int
    form: str
    key_db: float
    """Only keys quantised."""
    value_db: float
    both_db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLoss:
    """Of one form."""

    form: CacheForm
    layers: tuple[LayerLoss, ...]
    end: Divergence


@torch.no_grad()
def cache_walk(
    model: WalkedModel, batch: TokenBatch, forms: Sequence[CacheForm], progress: Watch | None = None
) -> list[CacheLoss]:
    """Every form, each layer's weights read once."""
    exact = model.start(batch)
    own = [exact for _ in forms]
    losses: list[list[LayerLoss]] = [[] for _ in forms]
    for index in range(model.num_layers):
        if progress is not None:
            progress(index, model.num_layers)
        with model.layer(index) as layer:
            clean, wanted = _run(model, index, layer, exact)
            for number, form in enumerate(forms):
                found = []
                for chosen in filters_of(form, batch.valid):
                    with filtered(layer, chosen):
                        found.append(_db(wanted, _run(model, index, layer, exact)[1], batch.valid))
                losses[number].append(
                    LayerLoss(layer=index, form=form.name, key_db=found[0], value_db=found[1], both_db=found[2])
                )
                with filtered(layer, filters_of(form, batch.valid)[2]):
                    own[number] = model.run(index, layer, own[number])
            exact = clean
    if progress is not None:
        progress(model.num_layers, model.num_layers)
    ends = [divergence(model, exact[batch.valid], model, one[batch.valid]) for one in own]
    return [
        CacheLoss(form=form, layers=tuple(rows), end=end) for form, rows, end in zip(forms, losses, ends, strict=True)
    ]


def filters_of(form: CacheForm, valid: Tensor) -> tuple[Filter, Filter, Filter]:
    """Keys only, values only, both."""
    return (
        lambda key, value: (form.key(key, valid), value),
        lambda key, value: (key, form.value(value, valid)),
        lambda key, value: (form.key(key, valid), form.value(value, valid)),
    )


@contextmanager
def filtered(layer: nn.Module, chosen: Filter) -> Iterator[None]:
    """Attention reads what the cache gives back. Only while the block runs."""
    modules = [module for module in layer.modules() if is_attention(module)]
    for module in modules:
        setattr(module, CACHE_FILTER, chosen)
    try:
        yield
    finally:
        for module in modules:
            delattr(module, CACHE_FILTER)


def _run(model: WalkedModel, index: int, layer: nn.Module, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """A layer's output, and what its attention gave."""
    given: list[Tensor] = []
    handles = [
        module.register_forward_hook(lambda _, __, output: given.append(output[0]))
        for module in layer.modules()
        if is_attention(module)
    ]
    try:
        output = model.run(index, layer, hidden)
    finally:
        for handle in handles:
            handle.remove()
    return output, given[0] if given else output


def _db(clean: Tensor, other: Tensor, valid: Tensor) -> float:
    signal = float(clean[valid].square().sum())
    noise = float((other - clean)[valid].square().sum())
    if not math.isfinite(noise):
        return -math.inf
    return min(EXACT_DB, 10 * math.log10(max(signal, 1e-30) / max(noise, 1e-30)))

"""Keys and values of a request's tokens as the model's own weights give them, by the walk, and how far noise moves them.

Two hidden states go through the layers: an exact one in fp32, and one that is rounded to the cache's dtype in front of
every layer, which is what an engine in that dtype does at the least. The distance of their keys is the floor that a
difference must rise above.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from degarble.errors import TargetError
from degarble_engine.kv_precision.cache_walk import filtered
from degarble_engine.live_cache.rotation import Rotary
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel

LATENT_NORM = "kv_a_layernorm"
"""DeepSeek's name of the norm whose output the latent cache holds."""
NOISE_SEED, FP32_NOISE = 0, 2.0**-20
"""Relative, a few roundings' worth."""
Parts = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRows:
    """What one layer's cache must hold."""

    layer: int
    exact: Parts
    """`k` and `v` [tokens, num_kv_heads, lanes], or `latent` [tokens, 1, lanes]."""
    noisy: Parts
    rotary: Rotary | None
    """How this layer turns the keys' lanes; None where it does not."""


@torch.no_grad()
def recomputed(
    model: WalkedModel, token_ids: tuple[int, ...], dtype: torch.dtype, progress: Watch | None = None
) -> Iterator[LayerRows]:
    """Every layer in order. Raises TargetError for tokens outside the vocabulary, or attention that is out of reach."""
    if min(token_ids) < 0:
        raise TargetError(f"token id {min(token_ids)} is negative")
    batch = TokenBatch(
        ids=torch.tensor([token_ids]), valid=torch.ones(1, len(token_ids), dtype=torch.bool), origin="the request"
    )
    exact = noisy = model.start(batch)
    generator = torch.Generator().manual_seed(NOISE_SEED)
    computes_in = dtype if dtype in (torch.float32, torch.float16, torch.bfloat16) else torch.bfloat16
    for index in range(model.num_layers):
        if progress is not None:
            progress(index, model.num_layers)
        with model.layer(index) as layer:
            exact, found = _run(model, index, layer, exact)
            noisy, around = _run(model, index, layer, _disturbed(noisy, computes_in, generator))
        if not found:
            raise TargetError(f"{model.file}: layer {index} has no attention whose keys and values can be reached")
        yield LayerRows(layer=index, exact=found, noisy=around, rotary=_rotary(model, index, found))
    if progress is not None:
        progress(model.num_layers, model.num_layers)


def _disturbed(hidden: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """As an engine in that dtype holds it; in fp32 by what another order of summation changes."""
    if dtype != torch.float32:
        return hidden.to(dtype).float()
    return hidden * (1 + FP32_NOISE * torch.randn(hidden.shape, generator=generator))


def _run(model: WalkedModel, index: int, layer: nn.Module, hidden: Tensor) -> tuple[Tensor, Parts]:
    """The layer's output, and the rows that its attention would store."""
    kept: Parts = {}

    def keep(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        kept["k"], kept["v"] = (one[0].transpose(0, 1).contiguous() for one in (key, value))
        return key, value

    norms = [module for name, module in layer.named_modules() if name.endswith(LATENT_NORM)]
    handles = [module.register_forward_hook(lambda _, __, output: kept.update(c=output[0])) for module in norms]
    try:
        with filtered(layer, keep):
            output = model.run(index, layer, hidden)
    finally:
        for handle in handles:
            handle.remove()
    return output, _latent(kept, int(model.skeleton.config.qk_rope_head_dim)) if "c" in kept else kept


def _latent(kept: Parts, num_rotated: int) -> Parts:
    """[norm(c), rotated lanes], which are the last lanes of every head's key."""
    return {"latent": torch.cat([kept["c"], kept["k"][:, 0, -num_rotated:]], dim=-1)[:, None]}


def _rotary(model: WalkedModel, index: int, found: Parts) -> Rotary | None:
    given = model.position_embeddings(index)
    if given is None:
        return None
    cos, sin = given
    lanes = next(iter(found.values())).shape[-1]
    return Rotary.of(cos, sin, lanes, first=lanes - cos.shape[-1] if "latent" in found else 0)

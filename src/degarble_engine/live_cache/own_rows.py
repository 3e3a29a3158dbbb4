"""Rows that are right, but another token's: which token of the request, or of the vocabulary, each of them is.

In the first layer a row depends on nothing but its own token and position, so that rows of a foreign text can be read:
values do not turn with the position, and the vocabulary has one value row for each token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from degarble_engine.kv_precision.cache_walk import filtered
from degarble_engine.live_cache.laid import Laid
from degarble_engine.live_cache.recomputed import LATENT_NORM
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel

CHUNK, MAX_NAMED = 1024, 512
"""Ids of the vocabulary that are run together; rows whose ids are looked for."""
CLEAR = 2.0
"""The second best must be so many times as far away."""


class _Seen(Exception):
    """The rows are known; the rest of the layer is not needed."""


def own_tokens(laid: Laid, layer: int, tokens: Sequence[int]) -> dict[int, int]:
    """Token -> the token of the same request whose row of this layer, all parts, stands in its place."""
    parts = list(laid.found[layer])
    found = torch.cat([_unit(laid, layer, part, laid.found[layer][part]) for part in parts], dim=1)[list(tokens)]
    exact = torch.cat([_unit(laid, layer, part, laid.rows[layer].exact[part]) for part in parts], dim=1)
    distances = torch.cdist(found, exact)
    nearest = distances.argmin(dim=1).tolist()
    result = {}
    for token, other in zip(tokens, nearest, strict=True):
        if other != token and all(laid.fits(layer, part, token, laid.rows[layer].exact[part][other]) for part in parts):
            result[token] = other
    return result


def _unit(laid: Laid, layer: int, part: str, rows: Tensor) -> Tensor:
    """Parts weigh alike. [tokens, lanes of all heads]"""
    size = laid.rows[layer].exact[part].flatten(1).norm(dim=1).mean().clamp_min(1e-12)
    return rows.flatten(1).nan_to_num(0.0, 0.0, 0.0) / size


@torch.no_grad()
def foreign_ids(laid: Laid, model: WalkedModel, tokens: Sequence[int]) -> dict[int, int]:
    """Token -> the id of the vocabulary whose value row of layer 0 stands in its place; only where it is clear."""
    if 0 not in laid.found:
        return {}
    tokens = tokens[:MAX_NAMED]
    part = "latent" if "latent" in laid.found[0] else "v"
    lanes = _lanes(laid)
    found = laid.found[0][part][list(tokens)][..., :lanes].flatten(1)
    best = torch.full((len(tokens), 2), torch.inf)
    ids = torch.full((len(tokens),), -1)
    for start, rows in _value_rows(model, lanes):
        sizes = rows.norm(dim=1).clamp_min(1e-12)
        near = (torch.cdist(found, rows) / sizes).topk(min(2, len(rows)), dim=1, largest=False).indices
        gaps = (found[:, None] - rows[near]).norm(dim=2) / sizes[
            near
        ]  # cdist is off by 1e-3 of the size where rows agree
        gaps, order = gaps.sort(dim=1)
        ids = torch.where(gaps[:, 0] < best[:, 0], near.gather(1, order)[:, 0] + start, ids)
        best = torch.cat([best, gaps], dim=1).topk(2, dim=1, largest=False).values
    bound = laid.bounds[0, part]
    return {
        token: int(ids[at])
        for at, token in enumerate(tokens)
        if best[at, 0] <= bound and best[at, 1] >= CLEAR * best[at, 0]
    }


def _lanes(laid: Laid) -> int:
    """Lanes that do not turn."""
    rows = next(iter(laid.rows[0].exact.values()))
    rotary = laid.rows[0].rotary
    return rotary.first if "latent" in laid.found[0] and rotary is not None else int(rows.shape[-1])


def _value_rows(model: WalkedModel, lanes: int) -> Iterator[tuple[int, Tensor]]:
    """(first id, [ids, values of all heads]) of the whole vocabulary in layer 0."""
    size = model.weights.num_rows(model.embedding_name)
    kept: list[Tensor] = []

    def keep(_: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        kept.append(value[0].transpose(0, 1).flatten(1))
        raise _Seen

    with model.layer(0) as layer:
        norms = [module for name, module in layer.named_modules() if name.endswith(LATENT_NORM)]
        handles = [module.register_forward_hook(lambda _, __, output: _stop(kept, output[0, :, :lanes]))
                   for module in norms]  # fmt: skip
        try:
            for start in range(0, size, CHUNK):
                ids = torch.arange(start, min(start + CHUNK, size))[None]
                hidden = model.start(TokenBatch(ids=ids, valid=torch.ones_like(ids, dtype=torch.bool), origin=""))
                _run(model, layer, hidden, keep)
                yield start, kept.pop()
        finally:
            for handle in handles:
                handle.remove()


def _stop(kept: list[Tensor], rows: Tensor) -> None:
    kept.append(rows)
    raise _Seen


def _run(model: WalkedModel, layer: nn.Module, hidden: Tensor, keep: object) -> None:
    try:
        with filtered(layer, keep):  # type: ignore[arg-type]  # it never returns
            model.run(0, layer, hidden)
    except _Seen:
        pass

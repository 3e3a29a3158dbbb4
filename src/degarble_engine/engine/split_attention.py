"""Attention whose result for a token does not depend on what is computed with it.

Rows are taken in splits of a fixed size, and queries in tiles of a fixed multiple, so that every product has a shape for
which each row gets the same bits in any batch; partial results are joined in the order of the splits. A split behind a
request's last row is wholly masked and adds exact zeros, so requests of different length share one batch.

    split s:   m_s = max_j x_j      l_s = sum_j exp(x_j - m_s)      o_s = sum_j exp(x_j - m_s) v_j
    together:  sum_s exp(m_s - m) o_s / sum_s exp(m_s - m) l_s      online softmax (Milakov and Gimelshein, 2018)
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from degarble_engine.models.elementwise import in_whole_vectors

SPLIT = 256
"""Rows of a split."""
TILE = 8
"""Queries are filled up to a multiple of it."""


def split_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of several requests with equally many new tokens, over rows filled up to whole splits.

    query [requests, n, num_heads, head_dim], key [requests, m, num_kv_heads, head_dim], value [.., value_dim], mask
    [requests, n, m] true where a token sees a row, m a multiple of SPLIT -> [requests, n, num_heads, value_dim]
    """
    requests, num_new, heads, head_dim = query.shape
    kv_heads, num_rows = key.shape[2], key.shape[1]
    shared, splits = heads // kv_heads, num_rows // SPLIT
    # rows of one product: the new tokens of all query heads that share a key head
    tiles = query.unflatten(2, (kv_heads, shared)).permute(0, 2, 1, 3, 4).reshape(requests, kv_heads, -1, head_dim)
    missing = -tiles.shape[2] % TILE
    tiles = F.pad(tiles, (0, 0, 0, missing))
    seen = mask[:, :, None].expand(-1, -1, shared, -1).reshape(requests, num_new * shared, num_rows)
    seen = F.pad(seen, (0, 0, 0, missing))
    top = torch.full((requests * kv_heads, tiles.shape[2], 1), float("-inf"), device=query.device)
    total, mixed = torch.zeros_like(top), top.new_zeros(*top.shape[:2], value.shape[3])
    queries = tiles.flatten(0, 1).contiguous()
    for split in range(splits):
        rows = slice(split * SPLIT, (split + 1) * SPLIT)
        keys = key[:, rows].permute(0, 2, 3, 1).flatten(0, 1).contiguous()  # strides choose kernels, too
        values = value[:, rows].permute(0, 2, 1, 3).flatten(0, 1).contiguous()
        scores = torch.bmm(queries, keys).float() * scale
        is_out = ~seen[:, None, :, rows].expand(-1, kv_heads, -1, -1).flatten(0, 1)
        scores = scores.masked_fill(is_out, float("-inf"))
        own = scores.amax(-1, keepdim=True)
        reached = torch.maximum(top, own)
        base = reached.masked_fill(reached == float("-inf"), 0.0)  # nothing seen so far: exp(-inf) is 0 all the same
        weights = (scores - base).exp()
        before = in_whole_vectors(torch.exp, top - base)
        total = total * before + weights.sum(-1, keepdim=True)
        mixed = mixed * before + torch.bmm(weights.to(values.dtype), values).float()
        top = reached
    found = (mixed / total.clamp_min(1e-38)).to(query.dtype)[:, : num_new * shared]
    found = found.unflatten(0, (requests, kv_heads)).unflatten(2, (num_new, shared))
    return found.permute(0, 2, 1, 3, 4).flatten(2, 3)

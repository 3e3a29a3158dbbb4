"""How large a cache group is on one rank, and which KV head a query head or a rank owns.

Axis names are those of the trace schema: num_blocks, block_size, num_kv_heads, head_dim, kv (K and V), latent (MLA),
with `layers` for storages that hold several layers, and `x` for the split of head_dim that older kernels use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from degarble.errors import LayoutMismatch

AXES = ("num_blocks", "block_size", "num_kv_heads", "head_dim", "kv", "latent", "layers", "head_dim/x", "x")
"""Every axis a layout may be made of. Products of them, `kv*head_dim`, are merged axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Sizes of one group on one rank, in elements."""

    num_blocks: int
    block_size: int
    num_kv_heads: int = 1
    head_dim: int = 0
    latent: int = 0
    """Elements of a latent record (MLA): kv_lora_rank + qk_rope_head_dim, or bytes of a packed record."""
    num_layers: int = 1
    x: int = 8
    """16 bytes / item size: the inner part of head_dim in the K layout of the first PagedAttention kernels."""

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "num_kv_heads", "num_layers", "x"):
            if getattr(self, name) < 1:
                raise LayoutMismatch(f"{name} must be at least 1, found {getattr(self, name)}")

    def sizes(self) -> Mapping[str, int]:
        """Size of every axis; 0 where this group has no such axis."""
        return {
            "num_blocks": self.num_blocks,
            "block_size": self.block_size,
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "kv": 2,
            "latent": self.latent,
            "layers": self.num_layers,
            "head_dim/x": self.head_dim // self.x if self.head_dim % self.x == 0 else 0,
            "x": self.x,
        }


def kv_head_of_query(query_head: int, num_heads: int, num_kv_heads: int) -> int:
    """The KV head that a query head reads: consecutive query heads share one. Raises LayoutMismatch if it is unequal."""
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise LayoutMismatch(f"{num_heads} query heads cannot share {num_kv_heads} KV heads equally")
    return query_head // (num_heads // num_kv_heads)


def kv_heads_of_rank(rank: int, tp: int, num_kv_heads: int) -> range:
    """KV heads that a tensor-parallel rank holds: a slice of them, or one copy where there are more ranks than heads."""
    if tp <= num_kv_heads:
        if num_kv_heads % tp:
            raise LayoutMismatch(f"{num_kv_heads} KV heads cannot be cut for tp {tp}")
        each = num_kv_heads // tp
        return range(rank * each, (rank + 1) * each)
    if tp % num_kv_heads:
        raise LayoutMismatch(f"tp {tp} cannot replicate {num_kv_heads} KV heads equally")
    head = rank // (tp // num_kv_heads)
    return range(head, head + 1)

"""A shape against the sizes that are told, axis by axis; what is not told is not judged (KVC601, KVC614).

Kernel blocks may stand for logical ones, and K and V may be fused along head_dim: both are legal readings of a size.
"""

from __future__ import annotations

from degarble.kvcache.declaration import GroupDeclaration, KVDeclaration

CACHED_HEADS = ("full", "window", "chunked", "cross")
"""Kinds of groups that hold K and V by heads."""


def wrong_extent(declaration: KVDeclaration, group: GroupDeclaration) -> tuple[str, int, int] | None:
    """The first axis whose extent is none of those told: its name, the extent, the least of those told."""
    told = _told(declaration, group)
    for name, extent in zip(group.axes or (), group.shape or (), strict=False):
        if told.get(name) and extent not in told[name]:
            return name, extent, min(told[name])
    return None


def _told(declaration: KVDeclaration, group: GroupDeclaration) -> dict[str, set[int]]:
    size, kernel = group.block_size or declaration.block_size, group.kernel_block_size
    blocks = group.num_blocks if group.num_blocks is not None else declaration.num_blocks
    ratio = size // kernel if size and kernel and kernel > 0 else 1
    dim = None if group.kind == "mla" else declaration.head_dim
    return {
        "block_size": {value for value in (size, kernel) if value is not None},
        "num_blocks": set() if blocks is None else {blocks, blocks * ratio},
        "head_dim": set() if dim is None else {dim, 2 * dim},
        "kv": {1, 2},
    }


def wrong_stride(axes: list[str], shape: list[int], strides: list[int]) -> tuple[int, int] | None:
    """The first axis, from the inside, with a wrong stride, and what it needs.

    Axes inside a block are dense. The page stride, and strides outside it, may be larger (padding, pages of all layers),
    never smaller: then pages overlap.
    """
    dense = 1
    page = axes.index("num_blocks") if "num_blocks" in axes else -1
    for index in range(len(axes) - 1, -1, -1):
        stride, extent = strides[index], shape[index]
        is_page = index <= page
        if extent > 1 and (stride < dense or (stride != dense and not is_page)):
            return index, dense
        dense = max(dense, stride) * extent if is_page else dense * extent
    return None

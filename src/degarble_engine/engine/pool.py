"""The tensors of a paged KV cache, in any declared layout, on CPU or GPU.

The block manager names slots; this file puts K and V there and takes them back. A storage is a flat tensor seen through
the strides of its layout, so that a page may be padded and two layouts differ in nothing but numbers:

    view of a layer   [num_blocks, block_size, num_kv_heads, head_dim]      MLA: [num_blocks, block_size, latent]
    slot s            view[s // block_size, s % block_size]

The contract of the layout is judged when the storage is made, before anything is written. Rows that pad a batch write
to the trash slot, which nobody reads; no index is ever negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from degarble.errors import BlockMisuse, BoundCrossed
from degarble.kvcache.block_state import BlockCopy
from degarble.kvcache.contract import validate
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.graph_guard import Buffer
from degarble.kvcache.layout import KVLayout
from degarble.kvcache.tensor_facts import TensorFacts

CANARY = 0x5A
"""Byte that fills the padding of pages."""


class SlotIndex(NamedTuple):
    """Slots that were checked once and are used in every layer."""

    blocks: Tensor
    offsets: Tensor


SlotNumbers = Sequence[int] | npt.NDArray[np.int64]
Slots = SlotNumbers | SlotIndex


class PagedKVCache:
    """K and V (or latents) of all layers of one group."""

    def __init__(
        self,
        layout: KVLayout,
        geometry: Geometry,
        *,
        v_layout: KVLayout | None = None,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        page_stride: int | None = None,
        index_bits: int = 64,
    ) -> None:
        """`v_layout`: V is held otherwise than K. `page_stride`: elements from page to page, padding included."""
        self.layout, self.geometry, self.dtype, self.device = layout, geometry, dtype, device
        self.is_latent = "latent" in layout.atoms
        self.page_stride, self.index_bits = page_stride, index_bits
        self.storages: list[Tensor] = []
        self._paddings: list[Tensor] = []
        self.views: dict[str, list[Tensor]] = {}
        """`k`, `v` or `latent` -> for each layer [num_blocks, block_size, …], a view of the storage."""
        names = ("latent",) if self.is_latent else ("k", "v")
        if layout.has_kv_axis:
            shared = self._allocate(layout)
            self.views = {name: self._layer_views(layout, shared, kv) for kv, name in enumerate(names)}
        else:
            for name, one in zip(names, (layout, v_layout or layout), strict=False):
                self.views[name] = self._layer_views(one, self._allocate(one), 0)

    def index(self, slots: SlotNumbers) -> SlotIndex:
        """Slots for several calls. Raises BlockMisuse for one outside the pool."""
        return SlotIndex(*self._split(slots))

    def write(self, layer: int, rows: Mapping[str, Tensor], slots: Slots) -> None:
        """Put one row per slot: `k` and `v` are [num_tokens, num_kv_heads, head_dim], `latent` [num_tokens, latent].

        Raises BlockMisuse for a slot outside the pool, or rows of another shape.
        """
        blocks, offsets = self._split(slots)
        count = len(blocks)
        for name, views in self.views.items():
            view = views[layer]
            given = rows[name]
            wanted = (count, *self._row_shape())
            if tuple(given.shape) != wanted:
                raise BlockMisuse(
                    f"{name} of layer {layer}: rows of shape {list(given.shape)}, expected {list(wanted)}"
                )
            view[blocks, offsets] = given.to(view.dtype).reshape(count, *view.shape[2:])

    def gather(self, layer: int, slots: Slots) -> dict[str, Tensor]:
        """Rows in the order of the slots, in the shapes that `write` takes."""
        blocks, offsets = self._split(slots)
        shape = (len(blocks), *self._row_shape())
        return {name: views[layer][blocks, offsets].reshape(shape) for name, views in self.views.items()}

    def copy_blocks(self, copies: Iterable[BlockCopy]) -> None:
        """Copy the first rows of blocks, in all layers and parts, one after the other."""
        for copy in copies:
            for view in self._every_view():
                view[copy.target, : copy.num_rows] = view[copy.source, : copy.num_rows]

    def to_host(self, pairs: Sequence[tuple[int, int]], host: PagedKVCache) -> None:
        """Copy whole blocks, (block here, block there), to a cache that may lie elsewhere and have another layout."""
        for mine, theirs in zip(self._every_view(), host._every_view(), strict=True):
            for block, target in pairs:
                theirs[target] = mine[block].reshape(theirs.shape[1:]).to(theirs.device)

    def fill_unused(self, used_slots: Sequence[int], value: float) -> None:
        """Put a poison into every row that no sequence may read: NaN or 1e4 must not reach the output (KVC620)."""
        is_unused = torch.ones(self.num_slots, dtype=torch.bool, device=self.device)
        is_unused[torch.as_tensor(list(used_slots), dtype=torch.long, device=self.device)] = False
        blocks, offsets = self._split(is_unused.nonzero().flatten().tolist())
        for view in self._every_view():
            view[blocks, offsets] = value

    def scrub(self, blocks: Iterable[int]) -> None:
        """Put zeros into whole blocks: a NaN in a row that is masked still reaches a product with its weight of 0."""
        held = torch.as_tensor(list(blocks), dtype=torch.long, device=self.device)
        for view in self._every_view():
            view[held] = 0

    def check_padding(self) -> None:
        """Raises BoundCrossed if anything was written between pages."""
        for number, (flat, is_padding) in enumerate(zip(self.storages, self._paddings, strict=False)):
            wrong = (self._bytes(flat) != CANARY).any(dim=1) & is_padding
            if wrong.any():
                at = int(wrong.nonzero()[0])
                raise BoundCrossed(f"KVC609: storage {number}: element {at} lies between pages and was written")

    def buffers(self) -> dict[str, Buffer]:
        """Addresses of all storages, for the guard of captured graphs."""
        return {
            f"kv_storage_{number}": Buffer(flat.data_ptr(), flat.numel() * flat.element_size())
            for number, flat in enumerate(self.storages)
        }

    @property
    def num_slots(self) -> int:
        """Rows of one layer."""
        return self.geometry.num_blocks * self.geometry.block_size

    def _row_shape(self) -> tuple[int, ...]:
        return (self.geometry.latent,) if self.is_latent else (self.geometry.num_kv_heads, self.geometry.head_dim)

    def _every_view(self) -> list[Tensor]:
        return [view for views in self.views.values() for view in views]

    def _split(self, slots: Slots) -> tuple[Tensor, Tensor]:
        """Blocks and offsets; refuses what would index from the end or past it."""
        if isinstance(slots, SlotIndex):
            return slots
        index = torch.as_tensor(slots, dtype=torch.long)
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < self.num_slots:
            raise BlockMisuse(f"slots from {int(index.min())} to {int(index.max())} in a pool of {self.num_slots}")
        index = index.to(self.device)
        return index // self.geometry.block_size, index % self.geometry.block_size

    def _allocate(self, layout: KVLayout) -> list[Tensor]:
        """Storage of all layers: one tensor, or one a layer. Raises LayoutMismatch if the contract does not hold."""
        shape = layout.shape(self.geometry)
        strides = layout.strides(self.geometry, page_stride=self.page_stride)
        made: list[Tensor] = []
        for _ in range(1 if "layers" in layout.atoms else self.geometry.num_layers):
            flat = torch.zeros(strides[0] * shape[0], dtype=self.dtype, device=self.device)
            tensor = flat.as_strided(shape, strides)
            validate(layout, self.geometry, TensorFacts.of(tensor), index_bits=self.index_bits)
            self.storages.append(flat)
            if self.page_stride is not None:
                self._fill_padding(flat, shape, strides)
            made.append(tensor)
        return made

    def _fill_padding(self, flat: Tensor, shape: Sequence[int], strides: Sequence[int]) -> None:
        """Elements that no coordinate reaches hold canaries."""
        is_padding = torch.ones(flat.numel(), dtype=torch.bool, device=self.device)
        is_padding.as_strided(tuple(shape), tuple(strides)).fill_(False)
        self._bytes(flat)[is_padding] = CANARY
        self._paddings.append(is_padding)

    @staticmethod
    def _bytes(flat: Tensor) -> Tensor:
        """[elements, item size]"""
        return flat.view(torch.uint8).reshape(flat.numel(), -1)

    def _layer_views(self, layout: KVLayout, tensors: Sequence[Tensor], kv: int) -> list[Tensor]:
        """For each layer [num_blocks, block_size, …row] of K (kv 0) or V (1)."""
        sizes = self.geometry.sizes()
        strides = layout.split_strides(self.geometry, tensors[0].stride())
        row = ["latent"] if self.is_latent else ["num_kv_heads", "head_dim/x", "x"]
        row = ["num_kv_heads", "head_dim"] if "head_dim" in strides else row
        axes = ["num_blocks", "block_size", *row]
        shape, steps = [sizes[axis] for axis in axes], [strides[axis] for axis in axes]
        inside = strides.get("layers", 0)
        return [
            tensors[0 if inside else layer].as_strided(shape, steps, kv * strides.get("kv", 0) + layer * inside)
            for layer in range(self.geometry.num_layers)
        ]

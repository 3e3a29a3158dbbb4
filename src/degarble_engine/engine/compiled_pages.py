"""The paged cache as the compiled loops see it: flat lanes, and for each row where it begins."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from degarble_engine.compiled.kernels import Kernels, kernels
from degarble_engine.engine.pool import PagedKVCache
from degarble_engine.models.attend import AttentionForm, Rows

Array = npt.NDArray[Any]


class Places(msgspec.Struct, frozen=True):
    """One step's rows."""

    new: Array
    """[new tokens] slots that are written."""
    rows: Array
    """Slots of all rows of all requests, one request behind the other."""
    tokens: Array
    """[3, tokens]: where a token's request would have its position 0 in `rows`, the first row held, one past its own."""


class _Lanes(msgspec.Struct, frozen=True):
    """One part of one layer."""

    flat: Array
    base: int
    head_step: int
    block_step: int
    row_step: int


class CompiledPages:
    """Writes and attends. See `of` for when."""

    def __init__(self, cache: PagedKVCache, loops: Kernels) -> None:
        self._loops, self._block_size = loops, cache.geometry.block_size
        self._parts = {name: [_lanes(view) for view in views] for name, views in cache.views.items()}
        one = next(iter(self._parts.values()))[0]
        self._steps = one.block_step, one.row_step
        self._num_kv_heads, self._head_dim = cache.geometry.num_kv_heads, cache.geometry.head_dim
        self._of_step: tuple[Places, Array, Array] | None = None

    @classmethod
    def of(cls, cache: PagedKVCache) -> CompiledPages | None:
        """None where numba is missing, lanes do not lie side by side, K and V differ in strides, or it is no fp32 or bf16."""
        loops = kernels()
        views = [view for parts in cache.views.values() for view in parts]
        strides = {view.stride() for view in views}
        is_plain = len(strides) == 1 and views[0].stride(-1) == 1 and views[0].dim() == (3 if cache.is_latent else 4)
        is_known = cache.dtype in (torch.float32, torch.bfloat16) and views[0].device.type == "cpu"
        return cls(cache, loops) if loops is not None and is_plain and is_known else None

    def use_threads(self) -> None:
        """See Kernels; to be called by the thread that computes."""
        self._loops.use_threads()

    def write(self, layer: int, rows: Rows, places: Places) -> None:
        """The new rows of a layer; rows behind the real ones are left out."""
        new, _ = self._starts(places)
        for name, parts in self._parts.items():
            part = parts[layer]
            given = rows[name][: len(new)]
            shaped = given[:, None] if given.dim() == 2 else given
            self._loops.attention.store(shaped.contiguous().numpy(), part.flat, part.base, part.head_step, new)

    def attend(self, layer: int, query: Tensor, places: Places, form: AttentionForm) -> Tensor:
        """[tokens, heads, lanes] -> [tokens, heads, value lanes]; zeros for tokens without rows."""
        _, starts = self._starts(places)
        key, value, num_kv_heads, lanes = self._key_and_value(layer, form)
        shared = query.shape[1] // num_kv_heads
        found = query.new_empty(*query.shape[:2], lanes)
        tokens = places.tokens
        num_real = tokens.shape[1]
        found[num_real:] = 0.0
        if form.window is not None:
            first = np.maximum(tokens[1], tokens[2] - form.window)
            tokens = np.stack([tokens[0], first, tokens[2]])
        self._loops.attention.attend(
            query[:num_real].contiguous().numpy(), found[:num_real].numpy(), key.flat, value.flat, (key.base, value.base),
            (key.head_step, value.head_step, shared), starts, tokens, np.float32(form.scale),
        )  # fmt: skip
        return found

    def _key_and_value(self, layer: int, form: AttentionForm) -> tuple[_Lanes, _Lanes, int, int]:
        """K, V, key heads, lanes of V."""
        latent = self._parts.get("latent")
        if latent is not None:
            assert form.value_lanes is not None
            return latent[layer], latent[layer], 1, form.value_lanes
        key, value = self._parts["k"][layer], self._parts["v"][layer]
        return key, value, self._num_kv_heads, self._head_dim

    def _starts(self, places: Places) -> tuple[Array, Array]:
        """Elements at which the new rows and all rows begin; the same in every layer."""
        if self._of_step is None or self._of_step[0] is not places:
            self._of_step = places, self._elements(places.new), self._elements(places.rows)
        return self._of_step[1:]

    def _elements(self, slots: Array) -> Array:
        block_step, row_step = self._steps
        found: Array = slots // self._block_size * block_step + slots % self._block_size * row_step
        return found


def _lanes(view: Tensor) -> _Lanes:
    """Of [num_blocks, block_size, (heads,) lanes] in a storage of its own or a shared one."""
    flat = torch.empty(0, dtype=view.dtype).set_(view.untyped_storage())
    array = flat.numpy() if view.dtype == torch.float32 else flat.view(torch.int16).numpy().view(np.uint16)
    head_step = view.stride(2) if view.dim() == 4 else 0
    return _Lanes(array, view.storage_offset(), head_step, view.stride(0), view.stride(1))

"""Matrices and vectors of one model, made from whatever format they are stored in, with an account of how they are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from degarble.formats.interface import StoredModule
from degarble.formats.slicing import GROUP_INDEX
from degarble.profile.code_groups import code_groups
from degarble_engine.models.int4_linear import Int4Linear
from degarble_engine.models.linear import ROW_MULTIPLE, DenseLinear, Linear
from degarble_engine.numerics.streamed_weights import PRE_SCALE, StreamedWeights

Shape = tuple[int, int]
PACKED_BITS = 4


class WeightStore:
    """What a model's definition takes its weights from."""

    def __init__(
        self,
        weights: StreamedWeights,
        dtype: torch.dtype,
        *,
        keeps_packed: bool = True,
        keeps_dense_beside: bool = True,
        is_batch_invariant: bool = True,
    ) -> None:
        """`keeps_packed`: INT4 stays packed where torch has a kernel for it; `keeps_dense_beside`: with a dense copy for
        batches that the kernel is slow at. `is_batch_invariant`: see `linear`; packed weights are given up for it, as
        their kernel and the dense one differ.
        """
        self._weights, self.dtype = weights, dtype
        self._keeps_packed = keeps_packed and not is_batch_invariant
        self._keeps_dense_beside = keeps_dense_beside
        self._row_multiple = ROW_MULTIPLE if is_batch_invariant else 1
        self.num_bytes: Counter[str] = Counter()
        """Memory by how weights are kept."""
        self.rounding = 0.0
        """Largest relative change of a scale on its way into a packed kernel."""

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds a parameter."""
        return self._weights.has(name)

    def vector(self, name: str, size: int) -> Tensor:
        """A gain or a bias, in the dtype of the model."""
        return self._count(self._weights.tensor(name, (size,)).to(self.dtype), "vectors")

    def table(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """What is not multiplied in the plain way: an embedding, a router, an up-projection to absorb."""
        return self._count(self._weights.tensor(name, shape).to(dtype or self.dtype), "tables")

    def linear(self, names: Sequence[str], shapes: Sequence[Shape], *, bias: bool = False) -> Linear:
        """One product for several matrices with the same inputs, one below the other. `names` without `.weight`."""
        added = (
            [self.vector(f"{name}.bias", shape[0]) for name, shape in zip(names, shapes, strict=True)] if bias else []
        )
        vector = torch.cat(added) if added else None
        modules = [self._weights.module_of(f"{name}.weight") for name in names]
        packed = self._packed([module for module in modules if module is not None], len(names))
        dense = None
        if packed is None or self._keeps_dense_beside:
            parts = [self._weights.tensor(f"{name}.weight", shape) for name, shape in zip(names, shapes, strict=True)]
            dense = DenseLinear(torch.cat(parts).to(self.dtype), vector)
        return self._finished(packed, dense, vector)

    def experts(self, owner: str, num_experts: int, hidden: int, width: int) -> list[tuple[Linear, Linear]]:
        """(gate and up in one, down) of every expert of `owner`, however the file stacks them."""
        found: list[tuple[Linear, Linear]] = []
        gate_up = self._weights.tensor(f"{owner}.gate_up_proj", (num_experts, 2 * width, hidden))
        down = self._weights.tensor(f"{owner}.down_proj", (num_experts, hidden, width))
        for expert in range(num_experts):
            pair = []
            for name, parts, dense in (
                ("gate_up_proj", ("gate_proj", "up_proj"), gate_up[expert]),
                ("down_proj", ("down_proj",), down[expert]),
            ):
                stored = [self._weights.stored_part(f"{owner}.{name}", expert, part) for part in parts]
                own = [module for module in stored if module is not None and module.expert == expert]
                packed = self._packed(own, len(parts))
                keeps = packed is None or self._keeps_dense_beside
                pair.append(self._finished(packed, DenseLinear(dense.to(self.dtype)) if keeps else None, None))
            found.append((pair[0], pair[1]))
        return found

    def router(self, name: str, shape: Shape, dtype: torch.dtype | None = None) -> Linear:
        """A gate, which no format packs."""
        return self.tied(self.table(name, shape, dtype))

    def tied(self, table: Tensor) -> Linear:
        """A product with a table that is there already: a head that is the embedding."""
        linear = DenseLinear(table)
        linear.row_multiple = self._row_multiple
        return linear

    def _finished(
        self, packed: tuple[Tensor, Tensor, Tensor] | None, dense: Linear | None, bias: Tensor | None
    ) -> Linear:
        linear: Linear | None = None
        if packed is not None:
            try:
                made = Int4Linear(*packed, bias=bias, dense=dense)
            except ValueError:  # a shape the kernel lacks
                if dense is None:
                    raise
            else:
                self.rounding = max(self.rounding, made.rounding)
                linear = made
        if linear is None:
            assert dense is not None
            linear = dense
            linear.row_multiple = self._row_multiple
        self.num_bytes[linear.kind] += linear.num_bytes
        return linear

    def _packed(self, modules: Sequence[StoredModule], count: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """Codes, scales and zero points of all modules together, if all of them are plain groups of INT4."""
        if not self._keeps_packed or self._weights.is_gguf or len(modules) != count:
            return None
        parts = [_int4_groups(module) for module in modules]
        if any(part is None for part in parts) or len({part[1].shape[1] for part in parts if part is not None}) != 1:
            return None
        codes, scales, zeros = zip(*(part for part in parts if part is not None), strict=True)
        return torch.cat(codes), torch.cat(scales), torch.cat(zeros)

    def _count(self, tensor: Tensor, kind: str) -> Tensor:
        self.num_bytes[kind] += tensor.numel() * tensor.element_size()
        return tensor


def _int4_groups(module: StoredModule) -> tuple[Tensor, Tensor, Tensor] | None:
    """codes [out, in] uint8, scales and zeros [out, groups] fp32; None for any other format, or groups out of order."""
    scheme = module.form.scheme
    is_int4 = scheme is not None and scheme.type == "int" and scheme.num_bits == PACKED_BITS and not module.form.missing
    if not is_int4 or module.part(GROUP_INDEX) is not None or module.part(PRE_SCALE) is not None:
        return None
    groups = code_groups([module], module)
    if groups is None:
        return None
    codes = torch.from_numpy(np.ascontiguousarray(groups.codes[0].reshape(groups.codes.shape[1], -1)))
    scales = torch.from_numpy(np.array(groups.scales[0], np.float32))
    zeros = groups.zeros[0] if groups.zeros is not None else np.float32(1 << (PACKED_BITS - 1))
    return codes, scales, torch.from_numpy(np.array(np.broadcast_to(zeros, scales.shape), np.float32))

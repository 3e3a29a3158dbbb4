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
from degarble_engine.models.panels import PanelMaker
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
        held_as: torch.dtype | None = None,
        keeps_packed: bool = True,
        keeps_dense_beside: bool = True,
        is_batch_invariant: bool = True,
        device: str = "cpu",
    ) -> None:
        """`dtype`: of the activations. `held_as`: the precision that weights and cache may be rounded to; None: `dtype`.
        `keeps_packed`: INT4 stays packed where torch has a kernel for it; `keeps_dense_beside`: with a dense copy for
        batches that the kernel is slow at. `is_batch_invariant`: see `linear`; packed weights are given up for it, as
        their kernel and the dense one differ. `device`: where weights lie; elsewhere than on the CPU they are plain matrices.
        """
        self.device = torch.device(device)
        self._weights, self.dtype, self.held_as = weights, dtype, held_as or dtype
        self._panels = PanelMaker(dtype, self.held_as, is_batch_invariant=is_batch_invariant)
        self._keeps_packed = keeps_packed and not is_batch_invariant and self.device.type == "cpu"
        self._keeps_dense_beside = keeps_dense_beside
        self.row_multiple = ROW_MULTIPLE if is_batch_invariant else 1
        """Of products that are not a Linear of this store."""
        self._multiples: Counter[int] = Counter()
        self._has_experts = False
        self.num_bytes: Counter[str] = Counter()
        """Memory by how weights are kept."""
        self._scale_rounding = 0.0

    @property
    def rounding(self) -> float:
        """Largest relative change of a number on its way into a kernel: of a weight in panels, of a packed scale."""
        return max(self._scale_rounding, self._panels.rounding)

    @property
    def usual_row_multiple(self) -> int:
        """What most weights fill batches up to; 1 for experts, which see a few rows of a batch each."""
        usual = self._multiples.most_common(1)
        return 1 if self._has_experts or not usual else usual[0][0]

    def has(self, name: str) -> bool:
        """Whether the checkpoint holds a parameter."""
        return self._weights.has(name)

    def vector(self, name: str, size: int) -> Tensor:
        """A gain or a bias, in the dtype of the model."""
        return self._count(self._weights.tensor(name, (size,)).to(self.device, self.dtype), "vectors")

    def table(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """What is not multiplied in the plain way: an embedding, a router, an up-projection to absorb."""
        return self._count(self._weights.tensor(name, shape).to(self.device, dtype or self.dtype), "tables")

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
            dense = self._unpacked(torch.cat(parts), vector)
        return self._finished(packed, dense, vector)

    def experts(self, owner: str, num_experts: int, hidden: int, width: int) -> list[tuple[Linear, Linear]]:
        """(gate and up in one, down) of every expert of `owner`, however the file stacks them."""
        self._has_experts = True
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
                pair.append(self._finished(packed, self._unpacked(dense, None) if keeps else None, None))
            found.append((pair[0], pair[1]))
        return found

    def router(self, name: str, shape: Shape, dtype: torch.dtype | None = None) -> Linear:
        """A gate, which no format packs."""
        return self._dense(self.table(name, shape, dtype))

    def embedding(self, name: str, shape: Shape) -> Tensor:
        """Rows to look up, in `held_as`."""
        return self.table(name, shape, self.held_as)

    def tied(self, table: Tensor) -> Linear:
        """A product with a table that is there already: a head that is the embedding; in panels it is there twice."""
        panels = self._in_panels(table.float(), None)
        if panels is None:
            return self._dense(table.to(self.dtype))
        self.num_bytes[panels.kind] += panels.num_bytes
        return panels

    def _unpacked(self, weight: Tensor, bias: Tensor | None) -> Linear:
        return self._in_panels(weight, bias) or self._dense(weight.to(self.device, self.dtype), bias)

    def _in_panels(self, weight: Tensor, bias: Tensor | None) -> Linear | None:
        """None where no kind will do, or the CPU does not multiply."""
        return self._panels.make(weight, bias) if self.device.type == "cpu" else None

    def _dense(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        linear = DenseLinear(weight, bias)
        linear.row_multiple = self.row_multiple
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
                self._scale_rounding = max(self._scale_rounding, made.rounding)
                linear = made
        if linear is None:
            assert dense is not None
            linear = dense
        self.num_bytes[linear.kind] += linear.num_bytes
        self._multiples[linear.row_multiple] += linear.num_bytes
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

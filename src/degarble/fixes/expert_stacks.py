"""Stacks of experts as they lie on disk: which tensors belong together, and the header that one expert's share has.

    model.layers.0.mlp.experts.gate_up_proj_packed   I32  [experts, 2 * width, words]
    model.layers.0.mlp.experts.gate_up_proj_scale    BF16 [experts, 2 * width, groups]      one stack, three parts
    model.layers.0.mlp.experts.gate_up_proj_shape    I64  [3]

A part is recognised by the suffix of its role in some format, with or without `weight_`, joined by a dot or not. The
share of one expert, or its upper or lower half, is a run of bytes wherever outputs are the first axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.rope import Segment, cut, literal
from degarble.checkpoint.tensor_data import DTYPES
from degarble.formats.interface import PAYLOAD, StoredModule, WeightFormat

SHAPE = "shape"
"""The role of a part that repeats the logical shape in numbers."""

HALVES = 2


class Share(msgspec.Struct, frozen=True):
    """Which rows of one expert: all, or one of two halves."""

    expert: int
    half: int | None = None


class ExpertStack(msgspec.Struct, frozen=True, kw_only=True):
    """The matrices of all experts of a layer, one behind the other."""

    stem: str
    """Name on disk without the suffix of its parts."""
    format: WeightFormat
    parts: Mapping[str, TensorInfo]
    """Proper suffix -> stored tensor."""
    num_experts: int

    def headers(self, share: Share) -> dict[str, TensorInfo]:
        """The parts of a share, as the format would store a single matrix. Bytes are not told."""
        return {
            suffix: TensorInfo(info.name, info.dtype, self._shape(suffix, info, share), info.file, 0, 0)
            for suffix, info in self.parts.items()
        }

    def segments(
        self, suffix: str, stored: Sequence[Segment], share: Share, shape: Sequence[int]
    ) -> tuple[Segment, ...]:
        """The bytes of one part of a share, out of those of the stack; `shape` is the share's logical one."""
        info = self.parts[suffix]
        if self.format.roles[suffix] == SHAPE:
            return (literal(np.array(shape, DTYPES[info.dtype]).tobytes()),)
        size = info.nbytes // self.num_experts
        start, length = share.expert * size, size
        if share.half is not None and self._is_split(suffix):
            length //= HALVES
            start += share.half * length
        return tuple(cut(stored, start, start + length))

    def can_halve(self) -> bool:
        """Whether both halves of the rows are runs of bytes."""
        return all(
            self.parts[suffix].shape[1] % HALVES == 0 and self.format.axes[role][0][0] == 1 - len(info.shape)
            for suffix, info in self.parts.items()
            if (role := self.format.roles[suffix]) in self.format.axes and len(info.shape) > 1
        )

    def _shape(self, suffix: str, info: TensorInfo, share: Share) -> tuple[int, ...]:
        if self.format.roles[suffix] == SHAPE:
            return (2,)
        if len(info.shape) == 1:
            return (1,)
        rows, *rest = info.shape[1:]
        return (rows // HALVES if share.half is not None and self._is_split(suffix) else rows, *rest)

    def _is_split(self, suffix: str) -> bool:
        """A part with an axis of outputs; a group index or one number for each expert is everybody's."""
        return self.format.roles[suffix] in self.format.axes and len(self.parts[suffix].shape) > 1


def read_stacks(
    modules: Iterable[StoredModule], candidates: Iterable[WeightFormat], num_experts: int
) -> list[ExpertStack]:
    """All of these unknown modules as stacks of one format; empty if some are no part of any."""
    infos = [info for module in modules for info in module.parts.values()]
    for fmt in candidates:
        stacks = list(_grouped(infos, fmt, num_experts))
        if infos and sum(len(stack.parts) for stack in stacks) == len(infos):
            return stacks
    return []


def _grouped(infos: Sequence[TensorInfo], fmt: WeightFormat, num_experts: int) -> Iterator[ExpertStack]:
    """Tensors by their stem. Parts of the wrong size, or without codes or values, are left out."""
    tails = _tails(fmt)
    found: dict[str, dict[str, TensorInfo]] = {}
    for info in infos:
        tail = next((t for t in tails if info.name.endswith(t) and not info.name.endswith("." + t)), None)
        if tail is not None and _is_stacked(info, fmt.roles[tails[tail]], num_experts):
            found.setdefault(info.name[: len(info.name) - len(tail)], {})[tails[tail]] = info
    for stem, parts in found.items():
        payload = next((info for suffix, info in parts.items() if fmt.roles[suffix] == PAYLOAD), None)
        if payload is not None and len(payload.shape) == 3:
            yield ExpertStack(stem=stem, format=fmt, parts=parts, num_experts=num_experts)


def _tails(fmt: WeightFormat) -> dict[str, str]:
    """End of a stacked tensor's name -> proper suffix, the longest first; a plain payload may have none."""
    tails: dict[str, str] = {"": "weight"} if fmt.name == "plain" else {}
    for suffix in fmt.roles:
        if suffix:
            short = suffix.removeprefix("weight_")
            tails |= {f".{suffix}": suffix, f"_{suffix}": suffix, f".{short}": suffix, f"_{short}": suffix}
    return dict(sorted(tails.items(), key=lambda item: -len(item[0])))


def _is_stacked(info: TensorInfo, role: str, num_experts: int) -> bool:
    """One for each expert, or a shape in numbers."""
    if role == SHAPE:
        return num_elements(info.shape) <= 3 * num_experts and info.dtype in ("I32", "I64")
    return bool(info.shape) and info.shape[0] == num_experts and info.nbytes % num_experts == 0

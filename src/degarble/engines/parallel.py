"""Which tensor- and expert-parallel degrees a checkpoint allows: arithmetic on shapes, groups, blocks and heads.

A column-parallel layer (q, k, v, gate, up) is cut along its output, a row-parallel one (o, down) along its input.
A cut must not pass through a quantisation group or block, because one scale would then belong to two ranks.
Case in point: Qwen2-72B has 29568 inputs in `down_proj`; in groups of 128 these are 231 = 3 * 7 * 11 groups, so no
even degree works (vllm-project/vllm#21695). Padding to 29696 before quantising gives 232 groups, hence 2, 4 and 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

DEGREES = (1, 2, 4, 8, 16, 32, 64)
"""Degrees that people run; engines accept others, clusters rarely have them."""


class Role(StrEnum):
    """Along which axis an engine cuts a layer."""

    COLUMN = "column-parallel"
    KEY_VALUE = "column-parallel, heads repeated"
    ROW = "row-parallel"
    WHOLE = "not split"


_ROLE_OF_LEAF = {
    **dict.fromkeys(
        ("q_proj", "gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "q_b_proj", "kv_b_proj"), Role.COLUMN
    ),
    **dict.fromkeys(("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "fc1", "lm_head"), Role.COLUMN),
    **dict.fromkeys(("k_proj", "v_proj"), Role.KEY_VALUE),
    **dict.fromkeys(("o_proj", "down_proj", "w2", "out_proj", "fc2"), Role.ROW),
}


class AttentionHeads(msgspec.Struct, frozen=True, kw_only=True):
    """Head counts of the whole model."""

    num_heads: int
    num_kv_heads: int

    def obstacles(self, tp: int) -> list[str]:
        """Query heads are dealt out evenly; KV heads too, or, if there are fewer than ranks, repeated evenly."""
        found = []
        if self.num_heads % tp:
            found.append(f"{self.num_heads} attention heads over {tp} ranks")
        if self.num_kv_heads % tp and tp % self.num_kv_heads:
            found.append(f"{self.num_kv_heads} KV heads over {tp} ranks")
        return found


class ParallelLayer(msgspec.Struct, frozen=True, kw_only=True):
    """The logical shape of a layer, how it is cut, and the unit that a cut must not pass through."""

    name: str
    out_features: int
    in_features: int
    role: Role
    group_size: int | None = None
    """Along the input; None, 0 or -1: one scale a column, which no cut can hurt."""
    block_shape: tuple[int, int] | None = None
    """Rows (output) and columns (input) of one block of weights that share a scale."""
    num_parts: int = 1
    """Equal parts stored in one tensor (`gate_up_proj`: 2), each of which is cut by itself."""

    def obstacles(self, tp: int, num_kv_heads: int | None = None) -> list[str]:
        """Why `tp` ranks cannot share this layer; empty if they can."""
        if tp == 1 or self.role is Role.WHOLE:
            return []
        if self.role is Role.ROW:
            unit = self.block_shape[1] if self.block_shape else max(self.group_size or 0, 0)
            return self._cut("in", self.in_features, tp, unit)
        if self.role is Role.KEY_VALUE and num_kv_heads:
            tp = min(tp, num_kv_heads)
        unit = self.block_shape[0] if self.block_shape and tp > 1 else 0
        return self._cut("out", self.out_features // self.num_parts, tp, unit)

    def _cut(self, axis: str, size: int, tp: int, unit: int) -> list[str]:
        where = f"{self.name}: {size} {axis}_features over {tp} ranks"
        if size % tp:
            return [f"{where} leave a remainder of {size % tp}"]
        if unit and size // tp % unit:
            return [f"{where} give {size // tp} each, not a multiple of {unit}"]
        return []


def role_of(name: str) -> Role:
    """How engines cut the module of this name; `WHOLE` for every name that is not known to be cut."""
    return _ROLE_OF_LEAF.get(name.rpartition(".")[2], Role.WHOLE)


def tensor_parallel_obstacles(
    layers: Iterable[ParallelLayer], heads: AttentionHeads | None = None, degrees: Sequence[int] = DEGREES
) -> dict[int, tuple[str, ...]]:
    """For each degree what stands in its way, one line for each distinct reason; an empty tuple means it works."""
    layers = tuple(layers)
    num_kv_heads = heads.num_kv_heads if heads else None
    found = {}
    for tp in degrees:
        reasons = heads.obstacles(tp) if heads else []
        reasons += [reason for layer in layers for reason in layer.obstacles(tp, num_kv_heads)]
        found[tp] = tuple(dict.fromkeys(reasons))
    return found


def max_tensor_parallel(
    layers: Iterable[ParallelLayer], heads: AttentionHeads | None = None, degrees: Sequence[int] = DEGREES
) -> int:
    """The largest degree without an obstacle. One rank always works."""
    found = tensor_parallel_obstacles(layers, heads, degrees)
    return max((tp for tp, reasons in found.items() if not reasons), default=1)


def expert_parallel_degrees(num_experts: int, degrees: Sequence[int] = DEGREES) -> tuple[int, ...]:
    """Degrees that deal out `num_experts` routed experts evenly; every expert stays whole."""
    return tuple(ep for ep in degrees if num_experts > 0 and num_experts % ep == 0)

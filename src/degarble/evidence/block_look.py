"""Evidence for a second look at an attention or MLP: all heads, and up to 2,048 neurons, before anything is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import quantum
from degarble.profile.blocks import blocks
from degarble.profile.joint import alignment, unit_rows
from degarble.profile.layer import RUN, Block, JointProfile, columns, judge_block, rows
from degarble.profile.sample import UNREADABLE, spread

MOST_NEURONS = 2048
SOME_NEURONS = 256


class BlockLook:
    """Reads the modules of one block again, once, when asked."""

    def __init__(self, modules: Modules, config: Mapping[str, Any]) -> None:
        self._modules = modules
        self._config = config
        self._whole: dict[tuple[str, ...], JointProfile | None] = {}

    def whole(self, profile: JointProfile) -> JointProfile | None:
        """The same block, judged by most of its rows; None where they cannot be read."""
        key = tuple(sorted(profile.modules.values()))
        if key not in self._whole:
            block = self.block(profile)
            try:
                self._whole[key] = judge_block(block, MOST_NEURONS) if block is not None else None
            except UNREADABLE:
                self._whole[key] = None
        return self._whole[key]

    def block(self, profile: JointProfile) -> Block | None:
        """The modules behind a profile."""
        members = [self._modules[name] for name in profile.modules.values() if name in self._modules]
        return next(iter(blocks(members, self._config, all_experts=True)), None)


@provides("block_look")
def block_look(modules: Modules, model_config: ModelConfig | None = None) -> BlockLook:
    """Empty until a check has a suspicion."""
    return BlockLook(modules, model_config.values if model_config is not None else {})


def rotary_rows(rows_of_heads: Array, head_dim: int) -> Array:
    """Rows of whole heads in the order (0, 1), (2, 3), … put into (i, i + half): what GGUF's converter undoes."""
    heads = rows_of_heads.reshape(-1, head_dim // 2, 2, rows_of_heads.shape[1])
    return np.asarray(heads.transpose(0, 2, 1, 3).reshape(rows_of_heads.shape))


def half_order_restores(block: Block) -> dict[str, tuple[float, float, int]]:
    """`q`, `k` -> (T of q and k as stored, T with the rows of that one put into half order, rows compared).

    Raises ValueError where parts cannot be read.
    """
    head_dim = shape_of(block.parts["q"])[0] // block.num_heads
    shared = max(1, block.num_heads // block.num_kv_heads)
    heads = range(block.num_heads)
    query = unit_rows(rows(block.parts["q"], [(h * head_dim, (h + 1) * head_dim) for h in heads]))
    key = unit_rows(rows(block.parts["k"], [(h // shared * head_dim, (h // shared + 1) * head_dim) for h in heads]))
    stored = alignment(query, key)
    return {
        "q": (stored, alignment(rotary_rows(query, head_dim), key), len(query)),
        "k": (stored, alignment(query, rotary_rows(key, head_dim)), len(query)),
    }


def deinterleaved(block: Block) -> tuple[float, float, int]:
    """(T of up and gate with down as stored, with rows of gate and up dealt out in turn, rows compared).

    The smaller of the two pairs' T counts. Raises ValueError where parts cannot be read.
    """
    gate, up, down = block.parts["gate"], block.parts["up"], block.parts["down"]
    total = shape_of(down)[1]
    step = max(RUN, *(quantum(one) for one in (gate, up, down)))
    runs: Sequence[tuple[int, int]] = spread(total, SOME_NEURONS, step) if total > SOME_NEURONS else [(0, total)]
    target = unit_rows(columns(down, runs))
    stored = min(_pair(rows(gate, runs), target), _pair(rows(up, runs), target))
    doubled = np.concatenate([_joined_rows(gate, up, 2 * start, 2 * stop) for start, stop in runs])
    dealt = min(_pair(doubled[0::2], target), _pair(doubled[1::2], target))
    return stored, dealt, len(target)


def _joined_rows(gate: StoredModule, up: StoredModule, start: int, stop: int) -> Array:
    """Rows of gate above up, as one matrix."""
    total = shape_of(gate)[0]
    parts = []
    if start < total:
        parts.append(rows(gate, [(start, min(stop, total))]))
    if stop > total:
        parts.append(rows(up, [(max(start, total) - total, stop - total)]))
    return np.concatenate(parts)


def _pair(left: Array, target: Array) -> float:
    return alignment(unit_rows(left), target)

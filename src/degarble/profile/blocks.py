"""Which modules work together: the attention and the MLP of each layer, and some experts of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from degarble.executor import Executor, Progress, Unit
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import can_slice, num_outputs
from degarble.profile.layer import NUM_NEURONS, Block, JointProfile, judge_block
from degarble.profile.sample import UNREADABLE

PARTS: Mapping[str, str] = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "out_proj": "o",
    "up_proj": "up", "gate_proj": "gate", "down_proj": "down",
    "w1": "gate", "w3": "up", "w2": "down", "fc1": "up", "fc2": "down",
}  # fmt: skip
"""Last part of a canonical name -> its role in a block."""

EXPERTS_A_LAYER = 2
"""Experts of each layer that are looked at unless all are asked for; other ones in every layer."""
EXHAUSTIVE_NEURONS = 128
"""Neurons, or head dimensions, of each attention and MLP with `--exhaustive`, four times as many where something looks
wrong. T of unrelated vectors then deviates by sqrt(2 / 128) = 0.13 from 1, where the 64 of an ordinary
run give 0.18; trained models have about 60. All neurons would take longer than everything else together, and add nothing:
before a rule says anything, evidence/block_look.py reads 2,048. Every expert is judged, by 64 neurons."""
TEXT_CONFIGS = ("text_config", "llm_config", "language_config")


def blocks(modules: Iterable[StoredModule], config: Mapping[str, Any], *, all_experts: bool = False) -> list[Block]:
    """Attentions whose heads are known, MLPs, and experts."""
    heads, kv_heads = _heads(config)
    found: dict[tuple[str, int, int | None], dict[str, StoredModule]] = {}
    for module in modules:
        parent, _, last = (module.canonical or "").rpartition(".")
        part = PARTS.get(last)
        if part is not None and module.layer is not None and can_slice(module) and len(shape_of(module)) == 2:
            found.setdefault((parent, module.layer, module.expert), {})[part] = module
    chosen = _chosen_experts(found, all_experts)
    return [
        Block(layer=layer, expert=expert, parts=parts, num_heads=heads, num_kv_heads=kv_heads)
        for (_, layer, expert), parts in found.items()
        if (expert is None or (layer, expert) in chosen) and _fits(parts, heads, kv_heads)
    ]


def _fits(parts: Mapping[str, StoredModule], heads: int, kv_heads: int) -> bool:
    """Shapes agree, so that row i of one belongs to row i of the other."""
    if "down" in parts:
        inner = shape_of(parts["down"])[1]
        others = [shape_of(parts[part]) for part in ("up", "gate") if part in parts]
        return bool(others) and all(shape == (inner, shape_of(parts["down"])[0]) for shape in others)
    if "q" not in parts or heads < 1 or kv_heads < 1 or heads % kv_heads or num_outputs(parts["q"]) % heads:
        return False
    head_dim, hidden = num_outputs(parts["q"]) // heads, shape_of(parts["q"])[1]
    wanted = {"k": (kv_heads * head_dim, hidden), "v": (kv_heads * head_dim, hidden), "o": (hidden, heads * head_dim)}
    return len(parts) > 1 and all(shape_of(parts[part]) == shape for part, shape in wanted.items() if part in parts)


def _heads(config: Mapping[str, Any]) -> tuple[int, int]:
    for values in (config, *(config.get(key) for key in TEXT_CONFIGS)):
        heads = values.get("num_attention_heads") if isinstance(values, Mapping) else None
        if isinstance(values, Mapping) and type(heads) is int and heads > 0:
            kv_heads = values.get("num_key_value_heads", heads)
            return heads, kv_heads if type(kv_heads) is int and kv_heads > 0 else heads
    return 0, 0


def _chosen_experts(found: Iterable[tuple[str, int, int | None]], all_experts: bool) -> set[tuple[int, int]]:
    by_layer: dict[int, set[int]] = {}
    for _, layer, expert in found:
        if expert is not None:
            by_layer.setdefault(layer, set()).add(expert)
    chosen: set[tuple[int, int]] = set()
    for layer, experts in by_layer.items():
        ordered = sorted(experts)
        some = len(ordered) if all_experts else min(EXPERTS_A_LAYER, len(ordered))
        chosen |= {(layer, ordered[(layer * EXPERTS_A_LAYER + one) % len(ordered)]) for one in range(some)}
    return chosen


def profile_blocks(
    chosen: Iterable[Block],
    executor: Executor,
    *,
    neurons: int = NUM_NEURONS,
    progress: Progress | None = None,
) -> Iterator[JointProfile]:
    """Judge blocks; those whose values cannot be read are left out, as header rules report them.

    `neurons`: of attentions and MLPs; experts are many, and each is judged by NUM_NEURONS.
    """
    units = [
        Unit(
            sum(one.any_part.nbytes for one in block.parts.values()),
            _Judge(block, neurons if block.expert is None else NUM_NEURONS),
        )
        for block in chosen
    ]
    for profile in executor.run(units, progress):
        if profile is not None:
            yield profile


class _Judge:
    """The work of one unit."""

    def __init__(self, block: Block, neurons: int) -> None:
        self._block, self._neurons = block, neurons

    def __call__(self) -> JointProfile | None:
        try:
            return judge_block(self._block, self._neurons)
        except UNREADABLE:
            return None

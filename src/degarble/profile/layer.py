"""JointProfile: one layer's modules judged in pairs, from a few neurons and one attention head or two.

    pair          rows (a pair of vectors in the hidden channels)
    up, down      row i of up_proj      column i of down_proj        neurons: runs of 32
    gate, down    row i of gate_proj    column i of down_proj
    q, k          row i of q_proj       the row of its key head      whole heads, or the ends of one's halves
    v, o          the row of its value head    column i of o_proj

A suspicion is looked at again with four times the neurons before it is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import lcm

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import shape_of
from degarble.formats.interface import StoredModule
from degarble.formats.slicing import Runs, can_slice, group_size, num_outputs, quantum, stack_inputs, stack_outputs
from degarble.profile import joint
from degarble.profile.code_groups import columns_of, values_of
from degarble.profile.sample import spread

NUM_NEURONS = 64
MORE = 4
RUN = 32
WORDS_OF_DIMS = 16
"""Head dimensions are cut in multiples of this: whole words, and whole blocks of the orders that are tried."""
SUSPICIOUS = 3.0
"""Deviations. Healthy candidates stay below 0.6, those of random weights reach 5."""
WIDEST_BLOCK = 256
"""Inputs of a GGUF K-quant block, the largest thing that cannot be cut."""


class PairScore(msgspec.Struct, frozen=True, kw_only=True):
    """T of one pair as stored, and under every other order."""

    left: str
    right: str
    """Module names."""
    stored: float
    count: int
    """Pairs of rows that were compared."""
    channels: dict[str, float]
    """Order of the hidden channels of `left` -> T; of `right` it is the inverse order."""
    neurons: dict[str, float]
    """Order of the rows (neurons, head dimensions) of `left` -> T."""

    @property
    def best(self) -> tuple[str, str, float]:
        """(`channels` or `neurons`, order, deviations above the stored one) of the best candidate."""
        found = [("channels", name, value) for name, value in self.channels.items()]
        found += [("neurons", name, value) for name, value in self.neurons.items()]
        if not found:
            return "", "", 0.0
        side, name, value = max(found, key=lambda one: one[2])
        return side, name, joint.deviations(value, self.stored, self.count)


class JointProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One block of modules: an attention, an MLP or one expert."""

    layer: int
    expert: int | None
    modules: dict[str, str]
    """q, k, v, o, up, gate, down -> module name; those that were read."""
    pairs: tuple[PairScore, ...]
    key_value: float | None = None
    """See joint.exchange_of_key_value."""
    gate_up: float | None = None
    """See joint.exchange_of_gate_up."""
    rotary: float | None = None
    """See joint.rotary_order."""

    def pair(self, left: str, right: str) -> PairScore | None:
        """The pair of two parts, `up` and `down`."""
        names = (self.modules.get(left), self.modules.get(right))
        return next((pair for pair in self.pairs if (pair.left, pair.right) == names), None)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Modules that belong together."""

    layer: int
    expert: int | None
    parts: Mapping[str, StoredModule]
    num_heads: int = 0
    num_kv_heads: int = 0


def judge_block(block: Block, neurons: int = NUM_NEURONS) -> JointProfile:
    """Profile one block; with more neurons if something looks wrong. Raises ValueError where parts cannot be read."""
    judge = _attention if "q" in block.parts else _mlp
    first = judge(block, neurons)
    return judge(block, neurons * MORE) if _is_suspicious(first) else first


def _is_suspicious(profile: JointProfile) -> bool:
    signs = (profile.key_value, profile.gate_up, profile.rotary)
    return any(pair.best[2] > SUSPICIOUS for pair in profile.pairs) or any(
        one is not None and one < -0.5 for one in signs
    )


def _mlp(block: Block, neurons: int) -> JointProfile:
    down = block.parts["down"]
    runs = _neuron_runs(block, neurons)
    vectors = {"down": joint.unit_rows(columns(down, runs))}
    for part in ("up", "gate"):
        if part in block.parts:
            vectors[part] = joint.unit_rows(rows(block.parts[part], runs))
    scored = [_score(block, part, "down", vectors) for part in ("up", "gate") if part in vectors]
    has_both = "up" in vectors and "gate" in vectors
    return JointProfile(
        layer=block.layer,
        expert=block.expert,
        modules={part: block.parts[part].name for part in vectors},
        pairs=tuple(scored),
        gate_up=joint.exchange_of_gate_up(vectors["up"], vectors["gate"], vectors["down"]) if has_both else None,
    )


def _neuron_runs(block: Block, neurons: int) -> Runs:
    total = shape_of(block.parts["down"])[-1]
    step = lcm(RUN, *(quantum(module) for module in block.parts.values()))
    return ((0, total),) if total <= max(neurons, step) else spread(total, neurons, step)


def _attention(block: Block, neurons: int) -> JointProfile:
    """Rows of whole heads, or of one head's ends, each with the rows of the key and value head it uses."""
    head_dim = num_outputs(block.parts["q"]) // block.num_heads
    count = min(block.num_heads, max(1, neurons // head_dim))
    heads = sorted({int(at) for at in np.linspace(0, block.num_heads - 1, count).round()})
    shared = max(1, block.num_heads // block.num_kv_heads)
    dims = _head_dims(head_dim, neurons)
    width = sum(stop - start for start, stop in dims)
    own = _head_runs(heads, head_dim, dims)
    kept = _head_runs([head // shared for head in heads], head_dim, dims)
    readers: dict[str, Callable[[], Array]] = {
        "q": lambda: rows(block.parts["q"], own),
        "k": lambda: rows(block.parts["k"], kept),
        "v": lambda: rows(block.parts["v"], kept),
        "o": lambda: columns(block.parts["o"], own),
    }
    vectors = {part: joint.unit_rows(read()) for part, read in readers.items() if part in block.parts}
    pairs = [_score(block, *names, vectors) for names in (("q", "k"), ("v", "o")) if set(names) <= set(vectors)]
    exchange = None
    if len(vectors) == 4:
        crossed = joint.alignment(vectors["q"], vectors["v"]), joint.alignment(vectors["k"], vectors["o"])
        exchange = joint.exchange_of_key_value(pairs[0].stored, pairs[1].stored, *crossed)
    return JointProfile(
        layer=block.layer,
        expert=block.expert,
        modules={part: block.parts[part].name for part in vectors},
        pairs=tuple(pairs),
        key_value=exchange,
        rotary=joint.rotary_order(vectors["q"], vectors["k"], width) if "k" in vectors else None,
    )


def _head_dims(head_dim: int, neurons: int) -> Runs:
    """All of a head, or the ends of its two halves: rotary pairs stay pairs, (i, i + half) as well as (2 i, 2 i + 1).

    The last dimensions of a half turn slowest, and there q and k agree best: on SmolLM2, as well as in a whole head.
    """
    half, kept = head_dim // 2, neurons // 2
    if head_dim <= neurons or head_dim % 2 or kept % WORDS_OF_DIMS:
        return ((0, head_dim),)
    return ((half - kept, half), (head_dim - kept, head_dim))


def _head_runs(heads: Sequence[int], head_dim: int, dims: Runs) -> Runs:
    return tuple((head * head_dim + start, head * head_dim + stop) for head in heads for start, stop in dims)


def _score(block: Block, left: str, right: str, vectors: Mapping[str, Array]) -> PairScore:
    one, two = vectors[left], vectors[right]
    width = 32 if block.parts[left].form.format == "gguf" else 8
    return PairScore(
        left=block.parts[left].name,
        right=block.parts[right].name,
        stored=joint.alignment(one, two),
        count=len(one),
        channels=joint.channel_orders(one, two, width),
        neurons=joint.neuron_orders(one, two, width),
    )


def rows(module: StoredModule, runs: Runs) -> Array:
    """Dequantised outputs: [n, in] float32. Runs that cut words are widened and cut afterwards."""
    step = quantum(module)
    wide = [(start // step * step, -(-stop // step) * step) for start, stop in runs]
    values = values_of(stack_outputs([module], wide))
    return values if wide == list(runs) else values[_inside(wide, runs)]


def columns(module: StoredModule, runs: Runs) -> Array:
    """Dequantised inputs as rows: [n, out] float32."""
    if not can_slice(module):
        raise ValueError(f"{module.name}: its inputs cannot be cut")
    try:
        return columns_of(stack_inputs(module, runs))
    except ValueError:
        step = max(group_size(module), WIDEST_BLOCK) if group_size(module) < shape_of(module)[-1] else WIDEST_BLOCK
        wide = [(start // step * step, min(-(-stop // step) * step, shape_of(module)[-1])) for start, stop in runs]
        parts = [values_of(stack_inputs(module, [run])) for run in wide]
        return np.ascontiguousarray(np.concatenate(parts, axis=1).T[_inside(wide, runs)])


def _inside(wide: Runs, runs: Runs) -> Array:
    """Where the wanted numbers lie in the widened runs."""
    found, at = [], 0
    for (start, stop), (low, high) in zip(wide, runs, strict=True):
        found.append(np.arange(at + low - start, at + high - start))
        at += stop - start
    return np.concatenate(found)

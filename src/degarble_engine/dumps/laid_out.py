"""A dump laid out as the walk has its taps: rows of valid tokens, modules by transformers' names, ranks put together.

engine                          transformers
self_attn.qkv_proj              q_proj, k_proj, v_proj side by side (each rank has its share of each)
mlp.gate_up_proj                gate_proj, up_proj
self_attn.attn, mlp.act_fn      what comes out goes into o_proj, down_proj
a layer's two outputs           hidden state and residual, to be added
a norm's two inputs             the same
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from degarble.errors import MalformedFile, TargetError
from degarble_engine.dumps.interface import INPUT, OUTPUT, Activation, Dump
from degarble_engine.dumps.tensor_file import read_tensor
from degarble_engine.numerics.tokens import TokenBatch, batch_of

FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
}
FEEDS = {"self_attn.attn": "self_attn.o_proj", "mlp.act_fn": "mlp.down_proj"}
"""Modules of engines whose output is the input of a linear."""
HIDDEN = ("0", "hidden_states", "x", "input", "input_")
RESIDUAL = ("1", "residual")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d{1,6})(?:\.(.+))?$")
Place = tuple[str, str, str]


@dataclass(slots=True)
class LaidOut:
    """Values by layer, module and role, read when they are asked for."""

    dump: Dump
    batch: TokenBatch
    unjudged: dict[str, str] = field(default_factory=dict)
    """Tensors that are there and could not be laid beside the walk's, with the reason."""
    used: set[Place] = field(default_factory=set)
    _by_layer: dict[int, dict[Place, list[Activation]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for (module, role, which), members in self.dump.of_first_step().items():
            found = _LAYER.search(module)
            if found is not None:
                self._by_layer.setdefault(int(found[1]), {})[found[2] or "", role, which] = members

    @property
    def layers(self) -> list[int]:
        """Those of which anything was written."""
        return sorted(self._by_layer)

    def modules(self, layer: int) -> list[str]:
        """Names in a layer, as the engine has them."""
        return list(dict.fromkeys(local for local, _, _ in self._by_layer.get(layer, {}) if local))

    def output(self, layer: int, local: str, widths: Sequence[int]) -> Tensor | None:
        """[tokens, sum of widths] what a module gave."""
        return self._one(layer, (local, OUTPUT, "0"), widths)

    def given(self, layer: int, local: str, width: int, *, is_norm: bool = False) -> Tensor | None:
        """[tokens, width] what a module was given; of a norm that adds first, the sum."""
        found = next(
            (one for which in HIDDEN if (one := self._one(layer, (local, INPUT, which), [width])) is not None), None
        )
        if found is None:
            feeder = next((name for name, fed in FEEDS.items() if fed == local), None)
            return None if feeder is None else self._one(layer, (feeder, OUTPUT, "0"), [width])
        return self._plus(layer, local, INPUT, found) if is_norm else found

    def behind(self, layer: int, width: int) -> Tensor | None:
        """[tokens, width] the hidden state behind a layer, residual added."""
        found = self._one(layer, ("", OUTPUT, "0"), [width])
        return None if found is None else self._plus(layer, "", OUTPUT, found)

    def _plus(self, layer: int, local: str, role: str, first: Tensor) -> Tensor:
        for which in RESIDUAL:
            other = self._one(layer, (local, role, which), [first.shape[1]])
            if other is not None and other.is_floating_point():
                return first.float() + other.float()
        return first

    def _one(self, layer: int, place: Place, widths: Sequence[int]) -> Tensor | None:
        members = self._by_layer.get(layer, {}).get(place)
        if not members:
            return None
        name = f"layers.{layer}.{place[0]} {place[1]} {place[2]}".replace(". ", " ")
        try:
            parts = [self._rows(read_tensor(one.file, one.key), name) for one in members]
        except MalformedFile as error:
            self.unjudged[name] = str(error)
            return None
        rows = [part for part in parts if part is not None]
        if len(rows) < len(parts):
            return None
        joined = _joined(rows, widths)
        if joined is None:
            shapes = ", ".join(str(list(one.shape)) for one in rows[:4])
            self.unjudged[name] = f"expected {sum(widths)} values a token, found {len(rows)} tensors of shape {shapes}"
        return joined

    def _rows(self, values: Tensor, name: str) -> Tensor | None:
        """[tokens, features]; padding behind the tokens is left out."""
        flat = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values[:, None]
        valid = self.batch.valid
        if values.ndim > 2 and tuple(values.shape[:2]) == tuple(valid.shape):
            return flat[valid.flatten()] if flat.shape[0] == valid.numel() else None
        if flat.shape[0] < self.batch.num_tokens:
            self.unjudged[name] = f"expected {self.batch.num_tokens} tokens, found {flat.shape[0]}"
            return None
        return flat[: self.batch.num_tokens]


def _joined(ranks: Sequence[Tensor], widths: Sequence[int]) -> Tensor | None:
    """One tensor of all ranks: the same on each, or a share of every part on each."""
    have, wanted, count = ranks[0].shape[1], sum(widths), len(ranks)
    if any(one.shape != ranks[0].shape for one in ranks):
        return None
    if have == wanted:
        return ranks[0]
    if have * count != wanted or any(width % count for width in widths):
        return None
    shares = [one.split([width // count for width in widths], dim=1) for one in ranks]
    return torch.cat([share[part] for part in range(len(widths)) for share in shares], dim=1)


def names_of(local: str, modules: Mapping[str, object]) -> list[str]:
    """The modules of transformers behind an engine's name; none where there are none."""
    if local in modules:
        return [local]
    owner, _, leaf = local.rpartition(".")
    names = [f"{owner}.{part}" for part in FUSED.get(leaf, ())]
    return names if names and all(name in modules for name in names) else []


def dumped_batch(dump: Dump) -> TokenBatch | None:
    """The token ids that the engine read, cut into sequences where positions start again; None without ids."""
    places = dump.of_first_step()
    ids = _integers(places, ("", INPUT, "input_ids"), "embed_tokens", "embed_tokens")
    if ids is None:
        return None
    if ids.ndim == 2:
        return batch_of(ids.tolist(), str(dump.path))
    flat = ids.flatten().tolist()
    positions = _integers(places, ("", INPUT, "positions"), "layers.0", "positions")
    starts = [0]
    if positions is not None and positions.numel() == len(flat):
        found = positions.flatten().tolist()
        if found[0] != 0:
            raise TargetError(
                f"--dump {dump.path}: expected a prompt from its first token on, found position {found[0]}: "
                "dump a prefill that the prefix cache has nothing of"
            )
        starts = [at for at, position in enumerate(found) if position == 0]
    ends = [*starts[1:], len(flat)]
    return batch_of([flat[start:end] for start, end in zip(starts, ends, strict=True)], str(dump.path))


def _integers(places: Mapping[Place, list[Activation]], first: Place, ending: str, keyword: str) -> Tensor | None:
    """A tensor of integers, at its own place or among the inputs of a module."""
    wanted = [first, *(place for place in places if place[0].endswith(ending) and place[1] == INPUT
                       and place[2] in ("0", keyword, "input_ids", "input", "input_"))]  # fmt: skip
    for place in wanted:
        if place in places:
            values = read_tensor(places[place][0].file, places[place][0].key)
            if not values.is_floating_point() and values.dtype is not torch.bool and 0 < values.ndim < 3:
                return values.long()
    return None

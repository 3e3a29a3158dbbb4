"""Planting and restoring: what one component does to the output, measured and not argued.

A component of the candidate, put alone into the reference, reproduces its damage: KL at the end against the untouched
reference. Put back into the candidate, the reference's brings the total down. A forward starts at the first layer that
changed, from hidden states that were kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.numerics.divergence import Divergence, divergence
from degarble_engine.numerics.precision import rounded
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import Edit, WalkedModel

MAX_JUDGED_TOKENS = 160
"""Positions at which the KL of a counterfactual is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New values for rows of one parameter (of one expert)."""

    parameter: str
    expert: int | None
    rows: tuple[int, int] | None
    values: Tensor
    owner: WalkedModel | None = None
    """For embedding and head, which are never whole in memory: whose rows to take."""


class HiddenStore:
    """The hidden state before every layer, on disk, so that memory does not grow with depth."""

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="degarble-walk.") if folder is None else None
        self._folder = folder or Path(self._temporary.name if self._temporary else ".")

    def put(self, lane: str, layer: int, hidden: Tensor) -> None:
        """Keep one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        np.save(self._folder / f"{lane}-{layer}.npy", hidden.float().numpy(), allow_pickle=False)

    def get(self, lane: str, layer: int) -> Tensor | None:
        """One that was kept."""
        file = self._folder / f"{lane}-{layer}.npy"
        return torch.from_numpy(np.load(file, allow_pickle=False)) if file.exists() else None

    def __enter__(self) -> HiddenStore:
        """Use it, then remove what was temporary."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


@dataclass(slots=True)
class Experiment:
    """Forwards of variants of one model, judged against the reference's final state."""

    model: WalkedModel
    lane: str
    batch: TokenBatch
    store: HiddenStore
    reference: WalkedModel
    reference_final: Tensor  # [tokens, hidden]
    judged: Tensor = field(init=False)  # rows of valid tokens

    def __post_init__(self) -> None:
        count = self.reference_final.shape[0]
        self.judged = torch.linspace(0, count - 1, min(count, MAX_JUDGED_TOKENS)).long().unique()

    def kl(self, changes: Iterable[Change] = (), config_values: dict[str, Any] | None = None) -> float:
        """Mean KL divergence of the reference to the variant."""
        return self.judge(changes, config_values).kl

    def judge(self, changes: Iterable[Change] = (), config_values: dict[str, Any] | None = None) -> Divergence:
        """The same, with all it gives."""
        by_name: dict[str, list[Change]] = {}
        for one in changes:
            by_name.setdefault(one.parameter, []).append(one)
        owners = {name: one.owner for name, found in by_name.items() for one in found if one.owner is not None}
        edits = {name: found for name, found in by_name.items() if name not in owners}
        outside = any(not name.startswith(self.model.skeleton.layers_prefix) for name in edits)
        edit = _edit(self.model, edits)
        variant = self.model.counterfactual(edit, config_values, owners, edits_outside=outside)
        hidden = self._final(variant, by_name, config_values is not None)
        rows = hidden[self.batch.valid][self.judged]
        return divergence(self.reference, self.reference_final[self.judged], variant, rows)

    def _final(self, variant: WalkedModel, changed: Mapping[str, Any], everything: bool) -> Tensor:
        hidden = variant.start(self.batch)
        layers = [_layer_of(name, variant) for name in changed]
        first = 0 if everything else max(0, min(layers, default=variant.num_layers))
        kept = self.store.get(self.lane, first) if first else None
        if kept is None:
            first = 0
        else:
            hidden = kept.to(hidden.dtype)
        for index in range(first, variant.num_layers):
            with variant.layer(index) as layer:
                hidden = variant.run(index, layer, hidden)
        return hidden


def _layer_of(name: str, model: WalkedModel) -> int:
    """The layer of a parameter; -1 for the embedding, and one past the end for what stands behind all layers."""
    prefix = model.skeleton.layers_prefix
    if name.startswith(prefix):
        return int(name[len(prefix) :].partition(".")[0])
    return -1 if "embed" in name else model.num_layers


def _edit(model: WalkedModel, changes: Mapping[str, list[Change]]) -> Edit:
    before = model.edit

    def edit(name: str, values: Tensor) -> Tensor:
        if before is not None:
            values = before(name, values)
        wanted = changes.get(name.partition("[")[0])
        if wanted is None:
            return values
        values = values.clone()
        for one in wanted:
            place = values if one.expert is None else values[one.expert]
            if one.rows is None:
                place.copy_(one.values.reshape(place.shape))
            else:
                place[slice(*one.rows)] = one.values
        return values

    return edit


def planting(pair: LinearPair, *, bias_only: bool = False) -> list[Change]:
    """The candidate's weight (and bias) for the reference."""
    weight = [] if bias_only else [_weight(pair, pair.planted())]
    return weight + _biases(pair, pair.candidate_bias, pair.reference_bias)


def restoring(pair: LinearPair, *, bias_only: bool = False) -> list[Change]:
    """The reference's weight (and bias) for the candidate."""
    weight = [] if bias_only else [_weight(pair, pair.restored())]
    return weight + _biases(pair, pair.reference_bias, pair.candidate_bias)


def _weight(pair: LinearPair, values: Tensor) -> Change:
    stored = values.T if pair.transposed else values
    return Change(parameter=pair.parameter, expert=pair.expert, rows=pair.rows, values=stored)


def _biases(pair: LinearPair, new: Tensor | None, old: Tensor | None) -> list[Change]:
    if old is None:
        return []  # the model has no place for one
    name = f"{pair.parameter}_bias" if pair.expert is not None else pair.parameter.removesuffix(".weight") + ".bias"
    values = torch.zeros_like(old) if new is None else new
    return [Change(parameter=name, expert=pair.expert, rows=pair.rows, values=values)]


def honest(pair: LinearPair, bits: int, group: int) -> list[Change]:
    """The reference's own weight after honest rounding of the same width."""
    return [_weight(pair, rounded(pair.reference, bits, group))]

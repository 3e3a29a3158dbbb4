"""From records to guilty components, ranked by what each does to the output and proved by exchange."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from degarble.errors import DegarbleError
from degarble_engine.attribution.counterfactual import Change, Experiment, honest, planting, restoring
from degarble_engine.attribution.grouping import Group, grouped
from degarble_engine.attribution.ladder import EXACT, suspects
from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.attribution.operators import differing_keys, with_key
from degarble_engine.attribution.record import LayerRecord, guilty_norms, pairs_of
from degarble_engine.numerics.tap import Taps
from degarble_engine.numerics.walk import LayerRun, LayerStep
from degarble_engine.numerics.walked_model import WalkedModel

MAX_PLANTED = 12
"""Findings whose damage is measured; each costs about half a forward."""
MAX_RESTORED = 6
HARMFUL_KL = 1e-3
"""A difference in the config that costs less is an info; healthy FP8 costs 0.02."""
NOTICEABLE_KL = 1e-5
HONEST_FACTOR = 3.0
"""Planted KL over that of honest rounding of the same module, from which the damage is the fault's own."""
RESTORED_SHARE = 0.5


@dataclass(slots=True)
class Investigation:
    """Both models, their experiments, and the records of all layers."""

    reference: WalkedModel
    candidate: WalkedModel
    plant: Experiment
    restore: Experiment
    records: Sequence[LayerRecord]
    total_kl: float
    groups: list[Group] = field(default_factory=list)
    _pairs: dict[int, list[LinearPair]] = field(default_factory=dict)

    def find(self, outside: Sequence[Group]) -> list[Group]:
        """All guilty components, in order of severity, damage, and how structural the evidence is."""
        measures = [one for record in self.records for one in record.measures]
        linears = Counter(one.layer for one in measures)
        consumers = {(record.index, norm.name): norm.consumers for record in self.records for norm in record.norms}
        consumers = {place: names for place, names in consumers.items() if len(names) > 1}
        self.groups = [*outside, *grouped(suspects(measures), linears, consumers), *self._norm_groups()]
        self.groups += list(self._operators())
        for group in sorted(self.groups, key=lambda one: (one.is_warning, -one.score))[:MAX_PLANTED]:
            self._weigh(group)
        self.groups.sort(key=_rank)
        self._give_back()
        return self.groups

    def find_only(self) -> list[Group]:
        """The same without counterfactuals, where the outputs of both models cannot be compared."""
        measures = [one for record in self.records for one in record.measures]
        self.groups = [*grouped(suspects(measures), Counter(one.layer for one in measures), {}), *self._norm_groups()]
        self.groups.sort(key=_rank)
        return self.groups

    def _norm_groups(self) -> Iterator[Group]:
        for layer, norm in guilty_norms(list(self.records)):
            yield Group(kind="norm", layer=layer, name=norm.name, test="gain", value=norm.difference, bound=2.0**-7,
                        score=math.log(max(norm.difference, 1e-9) / 2.0**-7))  # fmt: skip

    def _operators(self) -> Iterator[Group]:
        for key, mine, theirs in differing_keys(self.reference, self.candidate):
            group = Group(
                kind="operator", layer=None, name=key, key=key, note=f"{mine!r:.60} instead of {theirs!r:.60}"
            )
            group.test, group.bound, group.score = "planted_kl", HARMFUL_KL, 1.0
            try:
                group.planted_kl = self.plant.kl(config_values=with_key(self.reference.config_values, key, mine))
            except DegarbleError as error:
                group.note += f" (the reference does not run with it: {error})"
                group.planted_kl = math.inf
            group.value = group.planted_kl
            yield group

    def _weigh(self, group: Group) -> None:
        """Damage alone, and what honest rounding of the same module would cost."""
        if group.planted_kl is not None:
            return
        group.planted_kl = self.plant.kl(self._changes(group, planted=True))
        single = group.suspects[0] if len(group.suspects) == 1 else None
        if single is not None and single.rounding != EXACT and group.layer is not None:
            pair = self._pair(group.layer, single.measures.name)
            if pair is not None:
                group.honest_kl = self.plant.kl(honest(pair, *_width(pair)))

    def _changes(self, group: Group, *, planted: bool) -> list[Change]:
        make = planting if planted else restoring
        owner = self.candidate if planted else self.reference
        if group.kind in ("embedding", "head", "final norm"):
            return [_outside_change(group, owner, self.plant.model if planted else self.restore.model)]
        if group.kind == "norm":
            return self._norm_changes(group, planted)
        found = []
        for suspect in group.suspects:
            if suspect.measures.layer is None:
                continue
            pair = self._pair(suspect.measures.layer, suspect.measures.name)
            if pair is not None:
                found += make(pair, bias_only=suspect.is_bias)
        return found

    def _norm_changes(self, group: Group, planted: bool) -> list[Change]:
        assert group.layer is not None
        name = f"{self.reference.skeleton.layer_name(group.layer)}.{group.name}.weight"
        owner = self.candidate if planted else self.reference
        layer = owner.skeleton.layers[group.layer]
        shape = tuple(layer.get_submodule(group.name)._parameters["weight"].shape)
        return [Change(parameter=name, expert=None, rows=None, values=owner.weights.tensor(name, shape))]

    def _pair(self, layer: int, name: str) -> LinearPair | None:
        """The pair of weights again: only the layers of findings are read a second time."""
        if layer not in self._pairs:
            self._pairs.clear()  # one layer of pairs in memory
            self._pairs[layer] = self._load(layer)
        return next((pair for pair in self._pairs[layer] if pair.name == name), None)

    def _load(self, layer: int) -> list[LinearPair]:
        hidden = self.plant.store.get(self.plant.lane, layer)
        if hidden is None:
            return []
        with self.reference.layer(layer) as one, self.candidate.layer(layer) as two:
            runs = []
            for model, module in ((self.reference, one), (self.candidate, two)):
                taps = Taps(self.plant.batch.valid)
                given = hidden.to(model.precision.dtype)
                output = model.run(layer, module, given, taps)
                runs.append(LayerRun(model, layer, module, given, output, taps))
            pairs, _, _ = pairs_of(LayerStep(layer, tuple(runs)))
        return pairs

    def _give_back(self) -> None:
        """Restore one after the other, and together in order of damage, until the total is what rounding costs."""
        together: list[Change] = []
        config = dict(self.candidate.config_values)
        errors = [one for one in self.groups if not one.is_warning and (one.planted_kl or 0) > NOTICEABLE_KL]
        for group in errors[:MAX_RESTORED]:
            if group.kind == "operator":
                key = str(group.key)
                value = self.reference.skeleton.config.to_dict().get(key)
                config = with_key(config, key, value)
                alone, together_now = with_key(self.candidate.config_values, key, value), config
                group.restored_kl = self._restored([], alone)
            else:
                changes = self._changes(group, planted=False)
                together += changes
                together_now = config
                group.restored_kl = self._restored(changes, None)
            single = len(errors) == 1
            group.left_kl = group.restored_kl if single else self._restored(together, together_now)

    def _restored(self, changes: Sequence[Change], config: dict[str, Any] | None) -> float | None:
        try:
            return self.restore.kl(changes, config_values=config)
        except DegarbleError:
            return None

    def is_proven(self, group: Group) -> bool:
        """Whether planting reproduces the damage and restoring takes it away."""
        planted = group.planted_kl
        if planted is None or planted < HARMFUL_KL or group.is_warning:
            return False
        if group.honest_kl is not None and planted < HONEST_FACTOR * group.honest_kl:
            return False
        if group.restored_kl is None:
            return False
        if not math.isfinite(planted) or not math.isfinite(self.total_kl):
            return math.isfinite(group.restored_kl)
        return self.total_kl - group.restored_kl >= RESTORED_SHARE * min(planted, self.total_kl)


def _rank(group: Group) -> tuple[bool, float, bool, float, int]:
    damage = group.planted_kl if group.planted_kl is not None else 0.0
    layer = group.layer if group.layer is not None else -1
    return (group.is_warning, -damage, not group.is_structural, -group.score, layer)


def _width(pair: LinearPair) -> tuple[int, int]:
    """Bits and group of the candidate's own scheme; four bits in groups of 64 where the file does not tell."""
    scheme = pair.stored.form.scheme if pair.stored is not None else None
    bits = scheme.num_bits if scheme is not None and scheme.num_bits else 4
    size = scheme.group_size if scheme is not None and scheme.group_size else 64
    return max(2, bits), size


def _outside_change(group: Group, owner: WalkedModel, host: WalkedModel) -> Change:
    name = f"{group.name}.weight"
    module = host.skeleton.model.get_submodule(group.name)
    if group.kind == "final norm":
        return Change(
            parameter=name, expert=None, rows=None, values=owner.weights.tensor(name, tuple(module.weight.shape))
        )
    return Change(parameter=name, expert=None, rows=None, values=torch.empty(0), owner=owner)

"""One walk, many arithmetics: each layer's weights are read once and run by every lane.

Causal attention makes one long sequence stand for all its beginnings (see ledger.py), so `max safe length` is the place of
the first token that is lost. Short texts are a batch of their own: massive activations sit on the first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from degarble_engine.numerics.tokens import TokenBatch, batch_of
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.overflow.block_sums import InputObserver
from degarble_engine.overflow.ledger import Ledger
from degarble_engine.overflow.scope import Scope
from degarble_engine.overflow.simulation import Simulation
from degarble_engine.overflow.switches import EXACT, Lane, rounded

EXACT_LANE = Lane(dtype="fp32", engines=("exact",), switches=EXACT)


@dataclass(slots=True)
class LaneRun:
    """One lane over one batch."""

    lane: Lane
    simulation: Simulation
    ledger: Ledger
    hidden: Tensor


@dataclass(slots=True)
class RangeWalk:
    """What came of it. The first run of every batch is the exact one."""

    model: WalkedModel
    batches: tuple[TokenBatch, ...]
    inputs: InputObserver
    runs: list[list[LaneRun]] = field(default_factory=list)
    """By batch."""

    def of_lane(self, lane: Lane) -> list[Ledger]:
        """The ledgers of a lane, one a batch."""
        return [run.ledger for runs in self.runs for run in runs if run.lane is lane]


@torch.no_grad()
def range_walk(
    model: WalkedModel, batches: Sequence[TokenBatch], lanes: Sequence[Lane], progress: Watch | None = None
) -> RangeWalk:
    """Walk all layers."""
    batches = [_clear_of_heads(model, batch) for batch in batches]
    found = RangeWalk(model, tuple(batches), InputObserver(model))
    scope = Scope()
    walked = [(model.counterfactual(model.edit), batch) for batch in batches]
    for one, batch in walked:
        start = one.start(batch)
        found.runs.append([_lane_run(lane, scope, batch, start, found.inputs) for lane in (EXACT_LANE, *lanes)])
    for index in range(model.num_layers):
        if progress is not None:
            progress(index, model.num_layers)
        with model.layer(index) as module, scope.on(module):
            found.inputs.layer = index
            for (one, _), runs in zip(walked, found.runs, strict=True):
                for run in runs:
                    run.ledger.layer = index
                    run.hidden = run.simulation.run(partial(one.run, index, module, run.hidden))
    if progress is not None:
        progress(model.num_layers, model.num_layers)
    return found


@torch.no_grad()
def first_layer(model: WalkedModel, batch: TokenBatch, lanes: Sequence[Lane]) -> None:
    """Only the first layer, for what it costs."""
    batch, scope, one = _clear_of_heads(model, batch), Scope(), model.counterfactual(model.edit)
    start, inputs = one.start(batch), InputObserver(model)
    with model.layer(0) as module, scope.on(module):
        for lane in (EXACT_LANE, *lanes):
            run = _lane_run(lane, scope, batch, start, inputs)
            run.simulation.run(partial(one.run, 0, module, run.hidden))


def _lane_run(lane: Lane, scope: Scope, batch: TokenBatch, start: Tensor, inputs: InputObserver) -> LaneRun:
    ledger = Ledger(batch.valid, keeps_peaks=lane is EXACT_LANE)
    simulation = Simulation(lane.switches, scope, ledger, inputs.see if lane is EXACT_LANE else None)
    ledger.peak(start, "embedding", "output")
    hidden = ledger.finite(rounded(start.float(), lane.switches.residual), start, "embedding", "output")
    ledger.close_layer()
    return LaneRun(lane, simulation, ledger, hidden)


def _clear_of_heads(model: WalkedModel, batch: TokenBatch) -> TokenBatch:
    """A width that is no number of heads: [batch, heads, tokens, …] is told from [batch, tokens, heads, …] by it."""
    config = model.skeleton.config
    heads = {getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads")}
    if batch.ids.shape[1] not in heads:
        return batch
    rows = [ids[valid].tolist() for ids, valid in zip(batch.ids, batch.valid, strict=True)]
    wider = batch_of([*rows, [0] * (batch.ids.shape[1] + 1)], batch.origin, batch.pieces)
    return TokenBatch(
        ids=wider.ids[: len(rows)], valid=wider.valid[: len(rows)], origin=batch.origin, pieces=batch.pieces
    )

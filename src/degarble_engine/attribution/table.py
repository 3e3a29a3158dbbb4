"""The numbers behind a comparison, for the JSON report and the text table: by layer, by module, by token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from degarble_engine.attribution.ladder import peers_of
from degarble_engine.attribution.record import LayerRecord
from degarble_engine.numerics.divergence import Divergence
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel

WORST_TOKENS = 5
MAX_MODULES = 20_000
"""Modules listed one by one; a model of 46,000 experts keeps its layers' numbers only."""
MAX_TOKENS = 4096


def details_of(
    records: Sequence[LayerRecord], candidate: WalkedModel, batch: TokenBatch, end: Divergence | None, noise_kl: float
) -> dict[str, object]:
    """Plain values. Numbers that are not finite become None."""
    measures = [one for record in records for one in record.measures]
    return {
        "tokens": batch.num_tokens,
        "texts": batch.origin,
        "precision": candidate.precision.name,
        "kl_divergence": None if end is None else _number(end.kl),
        "top1_agreement": None if end is None else _number(end.top1_agreement),
        "noise_kl": _number(noise_kl),
        "rounding": {scheme: peers.rounding for scheme, peers in peers_of(measures).items()},
        "layers": [_layer(record) for record in records],
        "modules": [_module(record, one, candidate) for record in records for one in record.measures][:MAX_MODULES],
        "not_compared": [
            f"{candidate.skeleton.layer_name(record.index)}.{name}" for record in records for name in record.unmatched
        ][:MAX_MODULES],
        "by_token": _tokens(batch, end),
    }


def _layer(record: LayerRecord) -> dict[str, Any]:
    return {
        "layer": record.index,
        "inherited_error": _number(record.error),
        "local_error": _number(record.local),
        "noise_floor": _number(record.floor),
        "residual_rms": _number(record.rms),
        "non_finite_origin": record.origin,
        "router_agreement": record.router_agreement,
        "attention_logit_peak": record.logit_peak,
        "blocks": {
            one.name: {"error": _number(one.error), "std_ratio": _number(one.std_ratio)} for one in record.blocks
        },
    }


def _module(record: LayerRecord, one: Any, candidate: WalkedModel) -> dict[str, Any]:
    return {
        "module": f"{candidate.skeleton.layer_name(record.index)}.{one.name}",
        "layer": record.index,
        "sqnr_db": _number(one.sqnr_db),
        "relative_l2": _number(one.relative),
        "cosine_similarity": _number(one.cosine),
        "max_abs_error": _number(one.max_error),
        "max_at": [one.max_token, one.max_row],
        "worst_tokens": _worst(one.by_token),
        "inherited_relative_l2": _number(one.inherited),
        "z": _number(one.z),
        "row_z": _number(one.row_z),
        "coverage": _number(one.coverage),
        "weight_z": _number(one.weight_z),
        "slope": _number(one.slope),
        "row_slope": _number(one.row_slope),
        "offset": _number(one.offset),
    }


def _worst(by_token: Sequence[float]) -> list[list[float | None]]:
    """[place among the tokens that reached it, relative error there] of those farthest off; not finite ones first."""
    order = sorted(range(len(by_token)), key=lambda at: -by_token[at] if math.isfinite(by_token[at]) else -math.inf)
    return [[at, _number(by_token[at])] for at in order[:WORST_TOKENS]]


def _tokens(batch: TokenBatch, end: Divergence | None) -> list[dict[str, Any]]:
    if end is None:
        return []
    found = []
    for row in range(min(batch.num_tokens, MAX_TOKENS)):
        sequence, position = batch.place(row)
        pieces = batch.pieces[sequence] if sequence < len(batch.pieces) else ()
        text = pieces[position] if position < len(pieces) else None
        found.append({"text": text, "sequence": sequence, "position": position, "kl": _number(float(end.by_token[row])),
                      "agrees": bool(end.agrees[row])})  # fmt: skip
    return found


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")

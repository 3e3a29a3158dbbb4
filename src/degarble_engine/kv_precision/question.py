"""`degarble kv-precision`: what a quantised cache costs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from degarble.errors import EvidenceMissing, TargetError, UsageError
from degarble.report.interface import Report
from degarble_engine.kv_precision.cache_form import CacheForm
from degarble_engine.kv_precision.cache_walk import CacheLoss, cache_walk
from degarble_engine.numerics.tap import is_attention
from degarble_engine.numerics.tokens import TokenBatch, built_in_texts, encode, random_batch
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.walked_report import target_of

HAZARD_DB = 10.0
"""Below the median layer: a layer whose keys or values do not fit the form (a policy; peers differ by a few dB)."""


def kv_precision(
    target: str, forms: Sequence[CacheForm], texts: Sequence[str] | None = None, progress: Watch | None = None
) -> Report:
    """Walk one checkpoint. Raises TargetError where it cannot be run or has no attention that could be reached."""
    return kv_precision_of(WalkedModel.open(target), forms, texts, progress)


def kv_precision_of(
    model: WalkedModel, forms: Sequence[CacheForm], texts: Sequence[str] | None = None, progress: Watch | None = None
) -> Report:
    """The same for an opened model."""
    if not any(is_attention(module) for layer in model.skeleton.layers for module in layer.modules()):
        raise TargetError(f"{model.file}: no attention with a cache that the walk could reach")
    batch = _batch(model, texts)
    losses = cache_walk(model, batch, forms, progress)
    return Report(
        target=target_of(model),
        unjudged={name: f"stored without its {part}: read raw" for name, part in model.weights.raw_read.items()},
        comparison={
            "kind": "kv-precision",
            "tokens": batch.num_tokens,
            "forms": [_form(loss, model) for loss in losses],
        },
    )


def _batch(model: WalkedModel, texts: Sequence[str] | None) -> TokenBatch:
    try:
        return encode(list(texts) if texts is not None else built_in_texts(), [model.evidence], "texts")
    except EvidenceMissing:
        if texts is not None:
            raise UsageError("texts were given, and the model has no tokenizer.json that could be read") from None
        return random_batch(model.vocab_size)


def _form(loss: CacheLoss, model: WalkedModel) -> dict[str, Any]:
    typical = {part: median(getattr(row, part) for row in loss.layers) for part in ("key_db", "value_db")}
    return {
        "form": loss.form.name,
        "kl_divergence": loss.end.kl,
        "top1_agreement": loss.end.top1_agreement,
        "median_key_db": typical["key_db"],
        "median_value_db": typical["value_db"],
        "layers": [
            {"layer": row.layer, "key_db": row.key_db, "value_db": row.value_db, "both_db": row.both_db}
            for row in loss.layers
        ],
        "hazards": [
            {"layer": row.layer, "module": model.skeleton.layer_name(row.layer), "part": part.removesuffix("_db")}
            for row in loss.layers
            for part in ("key_db", "value_db")
            if getattr(row, part) < typical[part] - HAZARD_DB
        ],
    }

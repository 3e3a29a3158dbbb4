"""`degarble compare`: one walk over both models, then attribution, judged by the rules of level `forward`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from degarble.errors import EvidenceMissing, TargetError
from degarble.evidence.forward_pass import Collapse, Departure, Disagreement, ForwardPass
from degarble.finding import Location
from degarble.registry import rules_on
from degarble.report.interface import Report
from degarble.runner import run
from degarble_engine.attribution.blame import blame_of, tokenizer_blame
from degarble_engine.attribution.bound_table import bounds_of
from degarble_engine.attribution.counterfactual import Experiment, HiddenStore
from degarble_engine.attribution.investigation import Investigation
from degarble_engine.attribution.outside import outside_groups
from degarble_engine.attribution.propagation import keep_planted, propagation
from degarble_engine.attribution.record import COLLAPSED, LayerRecord, record_layer
from degarble_engine.attribution.straying import misfits_of, strays_of
from degarble_engine.attribution.table import details_of
from degarble_engine.kv_precision.cache_form import CacheForm
from degarble_engine.kv_precision.cache_walk import cache_walk
from degarble_engine.numerics.divergence import Divergence, divergence
from degarble_engine.numerics.precision import FP32, Precision
from degarble_engine.numerics.tokens import TokenBatch, built_in_texts, encode, random_batch
from degarble_engine.numerics.walk import LayerWalk, Watch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.overflow.served_half import is_half, served_half
from degarble_engine.walked_report import read_raw, walked_report

FLOOR_FACTOR = 3.0
MAX_POSITIONS = 20
LAST_TOKENS = 16
"""Tokens of context shown for a position."""
PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a caller narrows the comparison to."""

    texts: Sequence[str] | None = None
    origin: str = "built-in texts"
    precision: Precision = FP32
    state: Path | None = None
    progress: Watch | None = None
    kv_form: CacheForm | None = None
    """Also what the candidate loses once its cache is held in this form: the swap of the KV cache alone."""
    bounds: bool = False
    """Also every bound of every linear, and how errors propagate: about as much work again."""


def compare(target: str, reference: str, question: Question | None = None) -> Report:
    """Compare two checkpoints. Raises TargetError or UsageError where nothing can be compared."""
    asked = question or Question()
    candidate, healthy = WalkedModel.open(target, asked.precision), WalkedModel.open(reference)
    found: Report = compare_models(candidate, healthy, asked)
    return found


@torch.no_grad()
def compare_models(candidate: WalkedModel, reference: WalkedModel, question: Question) -> Report:
    """The same for opened models."""
    _require_comparable(candidate, reference)
    batch, texts = _batch(candidate, reference, question)
    found = _forward_pass(candidate, reference, batch, texts, question)
    candidate.evidence.supply("forward_pass", found)
    judged, unjudged = list(rules_on("forward_pass").values()), _unjudged(candidate, reference, found)
    if is_half(question.precision):
        walk, unread = served_half(candidate, batch)
        candidate.evidence.supply("overflow_walk", walk)
        judged += rules_on("overflow_walk").values()
        unjudged |= unread
    return walked_report(candidate, run(candidate.evidence, judged), unjudged, found.details)


def _require_comparable(candidate: WalkedModel, reference: WalkedModel) -> None:
    if candidate.hidden_size != reference.hidden_size:
        raise TargetError(
            f"hidden states of {candidate.hidden_size} values cannot be compared with the reference's "
            f"{reference.hidden_size}: the reference is another model"
        )


def _unjudged(candidate: WalkedModel, reference: WalkedModel, walked: ForwardPass) -> dict[str, str]:
    """What could not be compared, by name."""
    found = {}
    unmatched: Any = walked.details["not_compared"]
    if unmatched:
        found["shapes"] = (
            f"{len(unmatched)} modules have other shapes than the reference's, {unmatched[0]} first: not compared"
        )
    for model in (candidate, reference):
        if model.rope_not_applied is not None:
            found[f"{model.file}: rope"] = f"rotary settings were not applied: {model.rope_not_applied}"
    if candidate.num_layers != reference.num_layers:
        found["depth"] = (
            f"{candidate.num_layers} decoder layers against the reference's {reference.num_layers}: "
            "only the first ones were compared, and no output"
        )
    if candidate.vocab_size != reference.vocab_size:
        found["vocabulary"] = (
            f"{candidate.vocab_size} rows against the reference's {reference.vocab_size}: outputs were compared "
            "over the rows that both have" if candidate.vocab_size > reference.vocab_size else
            f"{candidate.vocab_size} rows, the reference has {reference.vocab_size}: outputs were not compared"
        )  # fmt: skip
    return found | read_raw(candidate)


def _batch(candidate: WalkedModel, reference: WalkedModel, question: Question) -> tuple[TokenBatch, list[str]]:
    texts = list(question.texts) if question.texts is not None else built_in_texts()
    try:
        return encode(texts, [reference.evidence, candidate.evidence], question.origin), texts
    except EvidenceMissing:
        if question.texts is not None:
            raise TargetError("texts were given, and neither model has a tokenizer.json that could be read") from None
        return random_batch(min(candidate.vocab_size, reference.vocab_size)), []


def _forward_pass(
    candidate: WalkedModel, reference: WalkedModel, batch: TokenBatch, texts: list[str], question: Question
) -> ForwardPass:
    kept = None if question.state is None else question.state / "hidden"
    with HiddenStore(kept) as store:
        walk = LayerWalk([reference, candidate], batch, question.state, question.progress)
        records = _walk(walk, store, reference, kept is not None, question.bounds)
        final = [hidden[batch.valid] for hidden in walk.hidden]
        same_depth = candidate.num_layers == reference.num_layers
        end = None
        noise_kl = 0.0
        if same_depth and candidate.vocab_size >= reference.vocab_size:
            end = divergence(reference, final[0], candidate, final[1])
            noisy = store.get("noise", reference.num_layers)
            if noisy is not None:
                noise_kl = divergence(reference, final[0], reference, noisy[batch.valid]).kl
        investigation = _investigation(candidate, reference, batch, store, records, final[0])
        groups = investigation.find(list(outside_groups(reference, candidate, batch))) if end is not None else []
        if end is None:
            groups = investigation.find_only()
        blames = [blame_of(group, investigation) for group in groups]
        spread = propagation(reference, candidate, batch, store) if question.bounds and end is not None else None
    tokens = tokenizer_blame(texts, candidate, reference)
    return ForwardPass(
        blames=(*([tokens] if tokens else []), *blames),
        collapses=tuple(_collapses(records, candidate)),
        departure=_departure(records, candidate),
        kl=None if end is None else end.kl,
        noise_kl=noise_kl,
        top1_agreement=None if end is None else end.top1_agreement,
        positions=_positions(end, batch),
        num_positions=batch.num_tokens,
        strays=tuple(strays_of(records, candidate, groups)),
        misfits=tuple(misfits_of(records, candidate)),
        details=details_of(records, candidate, batch, end, noise_kl)
        | ({"bounds": bounds_of(records, candidate, spread)} if question.bounds else {})
        | ({} if question.kv_form is None else {"kv_swap": _kv_swap(candidate, batch, question.kv_form)}),
    )


def _kv_swap(candidate: WalkedModel, batch: TokenBatch, form: CacheForm) -> dict[str, Any]:
    """The candidate with everything its own but the cache: loss at the end, and the layer that loses most."""
    (loss,) = cache_walk(candidate, batch, [form])
    worst = min(loss.layers, key=lambda one: one.both_db)
    return {
        "form": form.name,
        "kl_divergence": loss.end.kl,
        "top1_agreement": loss.end.top1_agreement,
        "worst_layer": worst.layer,
        "worst_layer_db": worst.both_db,
    }


def _walk(
    walk: LayerWalk, store: HiddenStore, reference: WalkedModel, is_kept: bool, with_bounds: bool
) -> list[LayerRecord]:
    """Take every layer: measure, and keep what counterfactuals start from."""
    noise_dtype = PRECISIONS.get(str(reference.config_values.get("dtype") or reference.config_values.get("torch_dtype")
                                     or "bfloat16").removeprefix("torch."), torch.bfloat16)  # fmt: skip
    noisy: Tensor | None = None
    for step in walk:
        one, two = step.runs
        if noisy is None:
            kept = store.get("noise", step.index) if is_kept else None
            noisy = one.input if kept is None else kept
        noisy = one.model.run(step.index, one.module, noisy.to(noise_dtype).to(one.input.dtype))
        store.put("reference", step.index, one.input)
        store.put("candidate", step.index, two.input)
        store.put("noise", step.index + 1, noisy)
        if with_bounds:
            keep_planted(store, step.index, two.again(one.input)[0])
        walk.note(record_layer(step, noisy, with_bounds=with_bounds).to_json())
    for lane, hidden in zip(("reference", "candidate"), walk.hidden, strict=True):
        store.put(lane, walk.num_layers, hidden)
    return [LayerRecord.from_json(value) for _, value in sorted(walk.notes.items())]


def _investigation(
    candidate: WalkedModel,
    reference: WalkedModel,
    batch: TokenBatch,
    store: HiddenStore,
    records: Sequence[LayerRecord],
    reference_final: Tensor,
) -> Investigation:
    def experiment(model: WalkedModel, lane: str) -> Experiment:
        return Experiment(model, lane, batch, store, reference, reference_final)

    plant, restore = experiment(reference, "reference"), experiment(candidate, "candidate")
    comparable = candidate.num_layers == reference.num_layers and candidate.vocab_size >= reference.vocab_size
    total = restore.kl() if comparable else math.nan
    return Investigation(reference, candidate, plant, restore, records, total)


def _collapses(records: Sequence[LayerRecord], candidate: WalkedModel) -> list[Collapse]:
    return [
        Collapse(
            location=Location(layer=record.index),
            block=f"{candidate.skeleton.layer_name(record.index)}.{block.name}",
            ratio=block.std_ratio,
            mean_ratio=block.mean_ratio,
        )
        for record in records
        for block in record.blocks
        if block.std_ratio < COLLAPSED
    ]


def _departure(records: Sequence[LayerRecord], candidate: WalkedModel) -> Departure | None:
    for record in records:
        floor = max(record.floor, 1e-6)
        if not record.error <= FLOOR_FACTOR * floor:
            worst = max(record.measures, key=lambda one: one.inherited or 0.0, default=None)
            module = None if worst is None else f"{candidate.skeleton.layer_name(record.index)}.{worst.name}"
            place = Location(layer=record.index, module=module)
            return Departure(location=place, error=record.error, floor=floor)
    return None


def _positions(end: Divergence | None, batch: TokenBatch) -> tuple[Disagreement, ...]:
    if end is None:
        return ()
    order = end.by_token.nan_to_num(math.inf).argsort(descending=True)[:MAX_POSITIONS]
    found = []
    for row in order.tolist():
        sequence, position = batch.place(row)
        pieces: Any = batch.pieces[sequence] if sequence < len(batch.pieces) else ()
        text = "".join(pieces[max(0, position + 1 - LAST_TOKENS) : position + 1])
        found.append(Disagreement(sequence=sequence, position=position, text=text[-60:], kl=float(end.by_token[row]),
                                  agrees=bool(end.agrees[row])))  # fmt: skip
    return tuple(found)

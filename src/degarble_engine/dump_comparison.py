"""`degarble compare TARGET --dump DIR`: an engine's own activations beside a walk of the checkpoint that it ran."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from degarble.errors import TargetError
from degarble.evidence.forward_pass import Departure, ForwardPass
from degarble.finding import Location
from degarble.registry import rules_on
from degarble.report.interface import Report
from degarble.runner import run
from degarble_engine.attribution.measures import relative_error
from degarble_engine.comparison import FLOOR_FACTOR, Question
from degarble_engine.dumps.beside import laid_layer
from degarble_engine.dumps.judge import Laid, blames
from degarble_engine.dumps.laid_out import LaidOut, dumped_batch
from degarble_engine.dumps.open import open_dump
from degarble_engine.numerics.tokens import TokenBatch, encode
from degarble_engine.numerics.walk import LayerStep, LayerWalk
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.walked_report import walked_report

SHOWN_DB, MAX_UNJUDGED, USUAL_DTYPE = 200.0, 20, torch.bfloat16


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """The hidden state behind one layer."""

    layer: int
    error: float | None
    floor: float
    rms: float


@dataclass(slots=True)
class DumpWalk:
    """A walk with a dump beside it."""

    model: WalkedModel
    dump: LaidOut
    laid: list[Laid] = field(default_factory=list)
    behind: list[Behind] = field(default_factory=list)
    _noisy: Tensor | None = None

    def take(self, step: LayerStep) -> None:
        """Measure one layer. Raises TargetError where the checkpoint's own walk is not finite."""
        own = step.runs[0]
        valid = own.taps.valid
        if not bool(torch.isfinite(own.output[valid]).all()):
            raise TargetError(f"the checkpoint itself gives values that are not finite in layer {step.index}")
        found = list(laid_layer(own, self.dump))
        self.laid += found
        dtype = next((getattr(torch, one.dtype) for one in found if one.dtype != "float32"), USUAL_DTYPE)
        before = own.input if self._noisy is None else self._noisy
        self._noisy = own.model.run(step.index, own.module, before.to(dtype).to(own.input.dtype))
        wanted = own.output[valid]
        dumped = self.dump.behind(step.index, wanted.shape[1])
        self.behind.append(
            Behind(
                layer=step.index,
                error=None if dumped is None else relative_error(dumped.float(), wanted),
                floor=relative_error(self._noisy[valid], wanted),
                rms=float(wanted.float().pow(2).mean().sqrt()),
            )
        )


@torch.no_grad()
def compare_dump(target: str, dump_path: str, question: Question) -> Report:
    """Compare. Raises TargetError, UsageError or MalformedFile where nothing can be compared."""
    dump = open_dump(Path(dump_path))
    model = WalkedModel.open(target, question.precision)
    batch = _batch(model, dumped_batch(dump), question)
    walked = DumpWalk(model, LaidOut(dump, batch))
    walk = LayerWalk([model], batch, None, question.progress)
    for step in walk:
        walked.take(step)
    if not walked.laid and all(one.error is None for one in walked.behind):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(walked.dump.unjudged.items())[:3])
        raise TargetError(
            f"--dump {dump_path}: no tensor in it stands beside one of the model's{f' ({reasons})' if reasons else ''}"
        )
    return _report(model, walked, batch)


def _batch(model: WalkedModel, dumped: TokenBatch | None, question: Question) -> TokenBatch:
    if dumped is not None:
        return dumped
    if question.texts is None:
        raise TargetError("the dump has no input_ids: give the text that the engine read (--text or --prompts)")
    return encode(list(question.texts), [model.evidence], question.origin)


def _report(model: WalkedModel, walked: DumpWalk, batch: TokenBatch) -> Report:
    found = ForwardPass(
        blames=tuple(blames(walked.laid)),
        departure=_departure(walked, model),
        num_positions=batch.num_tokens,
        details=_details(model, walked, batch),
    )
    model.evidence.supply("forward_pass", found)
    results = run(model.evidence, list(rules_on("forward_pass").values()))
    return walked_report(model, results, _unjudged(model, walked), found.details)


def _unjudged(model: WalkedModel, walked: DumpWalk) -> dict[str, str]:
    found = dict(list(walked.dump.unjudged.items())[:MAX_UNJUDGED])
    left = len(walked.dump.unjudged) - len(found)
    if left > 0:
        found["further tensors"] = f"{left} more could not be laid beside the model's"
    missing = sorted(set(range(model.num_layers)) - set(walked.dump.layers))
    if missing:
        found["layers"] = (
            f"the dump has nothing of {len(missing)} of {model.num_layers} layers, of layer {missing[0]} first"
        )
    return found


def _departure(walked: DumpWalk, model: WalkedModel) -> Departure | None:
    for one in walked.behind:
        floor = max(one.floor, 1e-6)
        if one.error is not None and not one.error <= FLOOR_FACTOR * floor:
            place = Location(layer=one.layer, module=model.skeleton.layer_name(one.layer))
            return Departure(location=place, error=one.error, floor=floor)
    return None


def _details(model: WalkedModel, walked: DumpWalk, batch: TokenBatch) -> dict[str, Any]:
    """The same keys as of two models, so that every writer shows them."""
    return {
        "tokens": batch.num_tokens,
        "texts": batch.origin,
        "precision": model.precision.name,
        "dump": walked.dump.dump.kind,
        "layers": [
            {"layer": one.layer, "inherited_error": _number(one.error), "noise_floor": _number(one.floor),
             "residual_rms": _number(one.rms)}
            for one in walked.behind
        ],
        "modules": [_module(one) for one in walked.laid],
    }  # fmt: skip


def _module(one: Laid) -> dict[str, Any]:
    return {
        "module": f"{one.module}.{one.operator}" if one.operator else one.module,
        "layer": one.layer,
        "dtype": one.dtype,
        "sqnr_db": None if one.local is None else _number(_decibels(one.local)),
        "relative_l2": _number(one.local),
        "inherited_relative_l2": _number(one.inherited),
        "cosine_similarity": _number(one.cosine),
        "max_abs_error": _number(one.max_error),
    }


def _decibels(relative: float) -> float:
    return SHOWN_DB if relative <= 0 else min(SHOWN_DB, -20 * math.log10(relative))


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")

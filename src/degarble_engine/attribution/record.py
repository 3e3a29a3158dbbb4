"""What the walk notes of one layer: measures of its linears, norms, errors of its blocks. JSON, so that it can be resumed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from degarble.errors import TargetError
from degarble_engine.attribution.bound_measures import BoundMeasures, bound_measures
from degarble_engine.attribution.folding import divide_out_pair_folds, is_compensated, is_norm_guilty
from degarble_engine.attribution.layer_pairs import linear_pairs
from degarble_engine.attribution.linear_pair import LinearPair, NormPair, norm_pairs
from degarble_engine.attribution.measures import Measures, measure, relative_error
from degarble_engine.numerics.walk import LayerRun, LayerStep

COLLAPSED = 0.25
"""Of the reference's standard deviation."""


@dataclass(slots=True, kw_only=True)
class NormRecord:
    """A norm whose gain is not the reference's, and whom it concerns."""

    name: str
    guilty: bool
    difference: float
    """Largest |ratio - 1| of the gains."""
    consumers: list[str]
    unfolded: list[str] = field(default_factory=list)
    """Consumers that do not make up for it, where others do."""


@dataclass(slots=True, kw_only=True)
class BlockRecord:
    """Attention or feed-forward on the reference's input."""

    name: str
    error: float
    std_ratio: float
    mean_ratio: float


@dataclass(slots=True, kw_only=True)
class LayerRecord:
    """One layer."""

    index: int
    error: float
    """Relative error of the hidden state behind it, candidate's own run."""
    local: float
    """The same on the reference's input: of what this layer adds."""
    floor: float
    """What rounding the reference's hidden states to its own dtype does by here."""
    rms: float
    """Of the reference's hidden state."""
    measures: list[Measures] = field(default_factory=list)
    norms: list[NormRecord] = field(default_factory=list)
    blocks: list[BlockRecord] = field(default_factory=list)
    origin: str | None = None
    """Module of the candidate's own run that makes non-finite values of finite ones."""
    router_agreement: float | None = None
    """Share of tokens for which both routers choose the same experts, on the reference's input."""
    unmatched: list[str] = field(default_factory=list)
    """Modules of the reference that the candidate has in another shape, or not at all: not compared."""
    logit_peak: tuple[float, float] | None = None
    """Largest |q·k| of reference and candidate, scaled."""
    bounds: list[BoundMeasures] = field(default_factory=list)
    """Of every linear, where they were asked for."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LayerRecord:
        """Undo `to_json`."""
        plain = dict(value)
        plain["measures"] = [Measures(**one) for one in value["measures"]]
        plain["norms"] = [NormRecord(**one) for one in value["norms"]]
        plain["blocks"] = [BlockRecord(**one) for one in value["blocks"]]
        plain["bounds"] = [BoundMeasures.from_json(one) for one in value.get("bounds", [])]
        peak = value["logit_peak"]
        plain["logit_peak"] = None if peak is None else tuple(peak)
        return cls(**plain)


def pairs_of(step: LayerStep) -> tuple[list[LinearPair], list[NormPair], list[bool]]:
    """The linears of a layer, made comparable; its norms, and which of those are guilty."""
    reference, candidate = step.runs
    pairs = linear_pairs(reference, candidate)
    norms = norm_pairs(reference, candidate, pairs)
    guilty = [is_norm_guilty(norm) for norm in norms]
    config = reference.model.skeleton.config
    heads = int(getattr(config, "num_attention_heads", 1))
    divide_out_pair_folds(pairs, heads, int(getattr(config, "num_key_value_heads", None) or heads))
    return pairs, norms, guilty


def record_layer(step: LayerStep, noisy: Tensor, *, with_bounds: bool = False) -> LayerRecord:
    """Measure one layer. Raises TargetError where the reference itself is broken. `noisy`: the floor's hidden state."""
    reference, candidate = step.runs
    if not bool(torch.isfinite(reference.output[reference.taps.valid]).all()):
        place = _origin(reference) or f"layer {step.index}"
        raise TargetError(f"the reference is broken itself: {place} gives values that are not finite")
    pairs, norms, guilty = pairs_of(step)
    is_gguf = candidate.model.weights.is_gguf
    local, taps = candidate.again(reference.input)
    valid = reference.taps.valid
    own = {name: (reference.taps.outputs[name], found) for name, found in candidate.taps.outputs.items()
           if name in reference.taps.outputs and reference.taps.outputs[name].shape == found.shape}  # fmt: skip
    added = reference.output[valid] - reference.input[valid]
    found = LayerRecord(
        index=step.index,
        error=relative_error(candidate.output[valid], reference.output[valid]),
        local=relative_error(local[valid] - reference.input[valid], added),
        floor=relative_error(noisy[valid], reference.output[valid]),
        rms=float(reference.output[valid].float().pow(2).mean().sqrt()),
        measures=[measure(pair, step.index, is_gguf, own.get(pair.name)) for pair in pairs],
        norms=[_norm(norm, is_guilty) for norm, is_guilty in zip(norms, guilty, strict=True)],
        origin=_origin(candidate),
        unmatched=_unmatched(reference, pairs),
    )
    for name in taps.outputs:
        if "." not in name and name in reference.taps.outputs and not name.endswith("norm"):
            found.blocks.append(_block(name, reference.taps.outputs[name], taps.outputs[name]))
    _look_at_choices(found, reference, candidate, taps)
    if with_bounds:
        found.bounds = [bound_measures(pair, candidate.model.precision, is_gguf) for pair in pairs]
    return found


def _unmatched(reference: LayerRun, pairs: list[LinearPair]) -> list[str]:
    names = {pair.name if pair.expert is None else pair.name.split(f".{pair.expert}.")[0] for pair in pairs}
    return [
        name
        for name, module in reference.module.named_modules()
        if name not in names and (isinstance(module, nn.Linear) or name in reference.taps.experts)
    ]


def _norm(norm: NormPair, guilty: bool) -> NormRecord:
    ratio = norm.candidate / torch.where(norm.reference == 0, torch.ones_like(norm.reference), norm.reference)
    difference = float((ratio - 1).abs().nan_to_num(math.inf).max())
    unfolded = []
    if norm.differs and not guilty:
        unfolded = [pair.name for pair in norm.consumers if not is_compensated(pair, norm)]
    return NormRecord(
        name=norm.name,
        guilty=guilty,
        difference=difference,
        consumers=[pair.name for pair in norm.consumers],
        unfolded=unfolded,
    )


def _block(name: str, wanted: Tensor, found: Tensor) -> BlockRecord:
    wanted, found = wanted.float(), found.float()
    return BlockRecord(
        name=name,
        error=relative_error(found, wanted),
        std_ratio=float(found.std() / wanted.std().clamp_min(1e-30)),
        mean_ratio=float(found.abs().mean() / wanted.abs().mean().clamp_min(1e-30)),
    )


def _origin(run: LayerRun) -> str | None:
    """The first module whose input is finite and whose output is not; None too where the layer's input was not."""
    if not bool(torch.isfinite(run.input[run.taps.valid]).all()):
        return None
    for name, output in run.taps.outputs.items():
        given = run.taps.inputs.get(name)
        if given is not None and bool(torch.isfinite(given).all()) and not bool(torch.isfinite(output).all()):
            return f"{run.model.skeleton.layer_name(run.index)}.{name}"
    return None if bool(torch.isfinite(run.output[run.taps.valid]).all()) else run.model.skeleton.layer_name(run.index)


def _look_at_choices(record: LayerRecord, reference: LayerRun, candidate: LayerRun, local: Any) -> None:
    for name, tap in reference.taps.routers.items():
        other = local.routers.get(name)
        if other is not None and other.experts.shape == tap.experts.shape:
            same = (tap.experts.sort(-1).values == other.experts.sort(-1).values).all(-1)
            record.router_agreement = float(same.float().mean())
    for name, call in reference.taps.attention.items():
        own = candidate.taps.attention.get(name)
        if own is not None:
            peaks = [float((one.logits() * one.scaling).abs().max()) for one in (call, own)]
            record.logit_peak = (peaks[0], peaks[1])


def guilty_norms(records: list[LayerRecord]) -> Iterator[tuple[int, NormRecord]]:
    """All norms that nobody makes up for."""
    for record in records:
        yield from ((record.index, norm) for norm in record.norms if norm.guilty)

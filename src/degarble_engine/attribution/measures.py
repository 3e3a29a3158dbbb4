"""The numbers of one linear that the ladder judges. All local: the candidate's weight on the *reference's* input.

    e           W'c x - W'r x, biases included              z, row z          rms of e / sigma, over all or for the worst row
    sigma²      x² · variance of honest rounding            weight z          the same with white input: no activations
    coverage    share of |e| <= 2 sigma, honest: 95.4 %
    slope       <W'c, W'r> / <W'r, W'r>                     row slope         the row farthest from 1
    offset      mean of (W'c - W'r) / step: rounding of any kind has none, a zero point that is off by one has one

sigma is kept above a tenth of what honest rounding to the same bits would give: a zeroed row stored with scale 0 would
have none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from degarble_engine.attribution.folding import row_slopes
from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.attribution.rounding_step import reference_steps
from degarble_engine.attribution.stored_rounding import weight_rounding
from degarble_engine.numerics.precision import FP32

CLIP_GROUP, INNER_SHARE, MIN_INSIDE = 64, 0.8, 0.25
MAX_SHIFT, CHANCE_SIGMAS = 50.0, 4.0
SMALL_ROW = 1e-4
"""Rows with less than this share of the mean energy have no slope worth a word."""
SHOWN_DB = 200.0
TWO_SIGMA = 2.0
CONSTANT_ERROR = 0.95
"""|mean over tokens| / rms of an error that is one constant vector: of a bias. Healthy weights reach 0.90."""


@dataclass(slots=True, kw_only=True)
class Measures:
    """One module. Plain numbers, so that a walk can be resumed from them."""

    name: str
    kind: str
    layer: int | None
    expert: int | None
    parameter: str
    scheme: str
    """Peers have the same."""
    bits: int | None
    """Of the stored codes; None for plain weights and where the file does not tell."""
    has_steps: bool
    finite: bool
    relative: float
    """rms e / rms y"""
    cosine: float
    max_error: float
    max_token: int
    max_row: int
    inherited: float | None
    """The same relative error of the candidate's own run."""
    slope: float
    inner_slope: float
    """Over the weights that no clipping of large ones can have touched."""
    row_slope: float
    row_slope_at: int
    z: float | None
    row_z: float | None
    row_z_at: int
    coverage: float | None
    """Share of entries within two sigma."""
    weight_z: float | None
    row_weight_z: float | None
    reference_z: float
    """Weight z in steps of four-bit rounding of the reference."""
    row_reference_z: float
    offset: float | None
    """Mean shift of the stored values, in steps, beyond what chance gives; None without steps."""
    reference_offset: float
    """The same in steps of four-bit rounding of the reference."""
    constant: float
    """|mean over tokens| / rms of the error."""
    folded: bool
    by_token: list[float]
    """Relative error of every token."""

    @property
    def sqnr_db(self) -> float:
        """Signal over error."""
        return SHOWN_DB if self.relative <= 0 else min(SHOWN_DB, -20 * math.log10(self.relative))


def measure(pair: LinearPair, layer: int | None, is_gguf: bool, own: tuple[Tensor, Tensor] | None) -> Measures:
    """All numbers of one pair. `own`: outputs of the reference's and of the candidate's own run."""
    wanted, found = pair.folded_reference(), pair.folded_candidate()
    finite = bool(torch.isfinite(pair.candidate).all())
    if not finite:
        found = torch.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)
    rounding = weight_rounding(pair, FP32, is_gguf)
    floor = reference_steps(wanted)
    steps = None if rounding is None else (12 * rounding.variance).sqrt()
    delta = found - wanted
    error, output = _error(pair, delta, wanted)
    slopes = row_slopes(found, wanted)
    energy = wanted.pow(2).sum(1)
    slopes = torch.where(energy > SMALL_ROW * energy.mean(), slopes, torch.ones_like(slopes))
    worst_slope = int((slopes - 1).abs().argmax())
    z, row_z, row_at, coverage = _z(pair.input, error, steps)
    inside = _inside(found, wanted)
    weight_z, row_weight_z = _weight_z(delta, steps, inside)
    reference_z, row_reference_z = _weight_z(delta, floor, inside)
    worst = int(error.abs().argmax()) if error.numel() else 0
    rms_error, rms_output = _rms(error), _rms(output)
    return Measures(
        name=pair.name,
        kind=pair.kind,
        layer=layer,
        expert=pair.expert,
        parameter=pair.parameter,
        scheme=_scheme(pair),
        bits=None if pair.stored is None or pair.stored.form.scheme is None else pair.stored.form.scheme.num_bits,
        has_steps=steps is not None,
        finite=finite,
        relative=rms_error / max(rms_output, 1e-30) if error.numel() else _rms(delta) / max(_rms(wanted), 1e-30),
        cosine=_cosine(output + error, output),
        max_error=float(error.abs().max()) if error.numel() else 0.0,
        max_token=worst // max(1, error.shape[1]),
        max_row=worst % max(1, error.shape[1]),
        inherited=None if own is None else relative_error(own[1], own[0]),
        slope=_slope(found, wanted),
        inner_slope=_slope(found * inside, wanted * inside) if bool(inside.any()) else _slope(found, wanted),
        row_slope=float(slopes[worst_slope]),
        row_slope_at=worst_slope,
        z=z,
        row_z=row_z,
        row_z_at=row_at,
        coverage=coverage,
        weight_z=weight_z,
        row_weight_z=row_weight_z,
        reference_z=reference_z or 0.0,
        row_reference_z=row_reference_z or 0.0,
        offset=None if steps is None or _is_plain(pair) else _offset(pair, delta, steps),
        reference_offset=_offset(pair, delta, floor),
        constant=float(error.mean(0).pow(2).mean().sqrt()) / max(rms_error, 1e-30) if error.numel() else 0.0,
        folded=pair.row_fold is not None or pair.column_fold is not None,
        by_token=_by_token(error, output),
    )


def _scheme(pair: LinearPair) -> str:
    if pair.stored is None:
        return "unknown"
    form = pair.stored.form
    return form.format + ("" if form.scheme is None else f" {form.scheme.label} {form.scheme.format or ''}")


def _error(pair: LinearPair, delta: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    error, output = pair.input @ delta.T, pair.input @ wanted.T
    bias = pair.bias_difference()
    if pair.reference_bias is not None:
        output = output + pair.reference_bias
    return error if bias is None else error + bias, output


def _z(inputs: Tensor, error: Tensor, steps: Tensor | None) -> tuple[float | None, float | None, int, float | None]:
    """z, the worst row's, which row that is, and the share within two sigma."""
    if steps is None or not error.numel():
        return None, None, 0, None
    variance = inputs.pow(2) @ (steps.pow(2) / 12).T
    ratios = error.pow(2) / variance.clamp_min(1e-30)
    rows = ratios.mean(0)
    inside = float((ratios <= TWO_SIGMA**2).float().mean())
    return math.sqrt(float(rows.mean())), math.sqrt(float(rows.max())), int(rows.argmax()), inside


def _weight_z(delta: Tensor, steps: Tensor | None, inside: Tensor) -> tuple[float | None, float | None]:
    """Over all weights or, row by row, over those that clipping cannot have touched, whichever is less."""
    if steps is None:
        return None, None
    rows = _row_ratios(delta, steps)
    enough = inside.float().mean(1) > MIN_INSIDE
    rows = torch.where(enough, torch.minimum(rows, _row_ratios(delta * inside, steps * inside)), rows)
    return math.sqrt(float(rows.mean())), math.sqrt(float(rows.max()))


def _row_ratios(delta: Tensor, steps: Tensor) -> Tensor:
    rows = delta.pow(2).sum(1) / (steps.pow(2).sum(1) / 12).clamp_min(1e-30)
    return torch.where(delta.any(1), rows, torch.zeros_like(rows))


def _is_plain(pair: LinearPair) -> bool:
    return pair.stored is not None and pair.stored.form.format == "plain"


def _offset(pair: LinearPair, delta: Tensor, steps: Tensor) -> float:
    """|mean error| in steps, less what honest rounding of so few weights may have. Negative gains and folds turn no sign."""
    signs = pair.scaled(torch.ones(1, 1).expand(delta.shape)).sign()
    shifts = (delta * signs / steps.clamp_min(1e-30)).clamp(-MAX_SHIFT, MAX_SHIFT)
    by_chance = CHANCE_SIGMAS / math.sqrt(12 * max(1, delta.numel()))
    return max(0.0, abs(float(shifts.mean())) - by_chance)


def _inside(found: Tensor, wanted: Tensor) -> Tensor:
    """[out, in] bool: weights well within what their group can hold. AWQ and searched scales clip those at the edge."""
    size = CLIP_GROUP if found.shape[1] % CLIP_GROUP == 0 else found.shape[1]
    reach = INNER_SHARE * found.abs().reshape(found.shape[0], -1, size).amax(-1, keepdim=True)
    return (wanted.abs().reshape(found.shape[0], -1, size) <= reach).reshape(found.shape)


def _slope(found: Tensor, wanted: Tensor) -> float:
    energy = float(wanted.pow(2).sum())
    return float((found * wanted).sum()) / energy if energy > 0 else 1.0


def _rms(values: Tensor) -> float:
    return float(values.pow(2).mean().sqrt()) if values.numel() else 0.0


def _cosine(one: Tensor, other: Tensor) -> float:
    norm = float(one.norm()) * float(other.norm())
    return float((one * other).sum()) / norm if norm > 0 and math.isfinite(norm) else float(not other.any())


def _by_token(error: Tensor, output: Tensor) -> list[float]:
    if not error.numel():
        return []
    found = error.norm(dim=1) / output.norm(dim=1).clamp_min(1e-30)
    return [round(float(one), 5) for one in found]


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """‖found - wanted‖ / ‖wanted‖; infinite where anything is not finite."""
    value = float((found.float() - wanted.float()).norm()) / max(float(wanted.float().norm()), 1e-30)
    return value if math.isfinite(value) else math.inf

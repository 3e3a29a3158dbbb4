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

from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.attribution.row_sums import RowSums, pair_sums
from degarble_engine.attribution.stored_rounding import pair_rounding
from degarble_engine.numerics.precision import FP32

MIN_INSIDE = 0.25
"""Share of a row's weights that must be inside before they are judged by themselves."""
CHANCE_SIGMAS = 4.0
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
    rounding = pair_rounding(pair, FP32, is_gguf)
    sums = pair_sums(pair, rounding)
    rows, error, output = sums.rows, sums.error, sums.output
    slopes = _row_slopes(rows)
    worst_slope = int((slopes - 1).abs().argmax())
    z, row_z, row_at, coverage = _z(error[:, sums.judged], sums.variance)
    weight_z, row_weight_z = _weight_z(rows, rows.expected, rows.inner_expected)
    reference_z, row_reference_z = _weight_z(rows, rows.floor, rows.inner_floor)
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
        has_steps=rounding is not None,
        finite=bool(rows.is_finite.all()),
        relative=rms_error / max(rms_output, 1e-30) if error.numel() else _root_ratio(rows.squared, rows.energy),
        cosine=_cosine(output + error, output),
        max_error=float(error.abs().max()) if error.numel() else 0.0,
        max_token=worst % max(1, error.shape[1]),
        max_row=worst // max(1, error.shape[1]),
        inherited=None if own is None else relative_error(own[1], own[0]),
        slope=_slope(rows.product, rows.energy),
        inner_slope=_slope(rows.inner_product, rows.inner_energy)
        if bool(rows.inner_share.any())
        else _slope(rows.product, rows.energy),
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
        offset=None if rows.shift is None or _is_plain(pair) else _offset(rows.shift, pair.reference.numel()),
        reference_offset=_offset(rows.floor_shift, pair.reference.numel()),
        constant=float(error.mean(1).pow(2).mean().sqrt()) / max(rms_error, 1e-30) if error.numel() else 0.0,
        folded=pair.row_fold is not None or pair.column_fold is not None,
        by_token=_by_token(error, output),
    )


def _scheme(pair: LinearPair) -> str:
    if pair.stored is None:
        return "unknown"
    form = pair.stored.form
    return form.format + ("" if form.scheme is None else f" {form.scheme.label} {form.scheme.format or ''}")


def _row_slopes(rows: RowSums) -> Tensor:
    """[out] least squares; 1 for rows too small to have one."""
    has_slope = rows.energy > SMALL_ROW * rows.energy.mean()
    return torch.where(has_slope, rows.product / rows.energy.clamp_min(1e-30), torch.ones_like(rows.energy))


def _z(error: Tensor, variance: Tensor | None) -> tuple[float | None, float | None, int, float | None]:
    """z, the worst row's, which row that is, and the share within two sigma."""
    if variance is None or not error.numel():
        return None, None, 0, None
    ratios = error.pow(2) / variance.clamp_min(1e-30)
    rows = ratios.mean(1)
    inside = float((ratios <= TWO_SIGMA**2).float().mean())
    return math.sqrt(float(rows.mean())), math.sqrt(float(rows.max())), int(rows.argmax()), inside


def _weight_z(rows: RowSums, expected: Tensor | None, inner: Tensor | None) -> tuple[float | None, float | None]:
    """Over all weights or, row by row, over those that clipping cannot have touched, whichever is less."""
    if expected is None or inner is None:
        return None, None
    found = _row_ratios(rows.squared, expected)
    enough = rows.inner_share > MIN_INSIDE
    found = torch.where(enough, torch.minimum(found, _row_ratios(rows.inner_squared, inner)), found)
    return math.sqrt(float(found.mean())), math.sqrt(float(found.max()))


def _row_ratios(squared: Tensor, expected: Tensor) -> Tensor:
    return squared / expected.clamp_min(1e-30)


def _is_plain(pair: LinearPair) -> bool:
    return pair.stored is not None and pair.stored.form.format == "plain"


def _offset(shifts: Tensor, count: int) -> float:
    """|mean error| in steps, less what honest rounding of so few weights may have."""
    by_chance = CHANCE_SIGMAS / math.sqrt(12 * max(1, count))
    return max(0.0, abs(float(shifts.double().sum())) / max(1, count) - by_chance)


def _slope(product: Tensor, energy: Tensor) -> float:
    total = float(energy.double().sum())
    return float(product.double().sum()) / total if total > 0 else 1.0


def _root_ratio(found: Tensor, wanted: Tensor) -> float:
    """rms over rms, of the weights themselves."""
    return math.sqrt(float(found.sum())) / max(math.sqrt(float(wanted.sum())), 1e-30)


def _rms(values: Tensor) -> float:
    return float(values.pow(2).mean().sqrt()) if values.numel() else 0.0


def _cosine(one: Tensor, other: Tensor) -> float:
    norm = float(one.norm()) * float(other.norm())
    return float((one * other).sum()) / norm if norm > 0 and math.isfinite(norm) else float(not other.any())


def _by_token(error: Tensor, output: Tensor) -> list[float]:
    if not error.numel():
        return []
    found = error.norm(dim=0) / output.norm(dim=0).clamp_min(1e-30)
    return [round(float(one), 5) for one in found]


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """‖found - wanted‖ / ‖wanted‖; infinite where anything is not finite."""
    value = float((found.float() - wanted.float()).norm()) / max(float(wanted.float().norm()), 1e-30)
    return value if math.isfinite(value) else math.inf

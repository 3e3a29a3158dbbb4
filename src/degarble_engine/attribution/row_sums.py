"""What the ladder needs to know of a pair's weights, as sums over rows, made in one go over blocks of rows.

A module of an 8B model has 59 million weights: each temporary of that size costs more to be mapped than to be computed,
and the tests want some forty. In blocks that stay in the processor's cache all of them take a tenth of the time. No row is
left out of anything: the single bad one of hundreds must show. Products with the input take more rows at a time, as
their kernels want.

    delta = W'c - W'r    inside = weights that no clipping of a group's large ones can have touched
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.attribution.rounding_step import group_steps
from degarble_engine.attribution.row_parts import row_parts
from degarble_engine.attribution.stored_rounding import PairRounding

PRODUCT_VALUES = 1 << 22
"""Weights of a product with the input."""
CLIP_GROUP, INNER_SHARE = 64, 0.8
MAX_SHIFT = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSums:
    """All [out]; None where the file does not tell how it was rounded."""

    is_finite: Tensor
    """Before values that are not were taken as 0."""
    energy: Tensor
    """Of the reference: sum of squares."""
    product: Tensor
    """Reference times candidate."""
    inner_energy: Tensor
    inner_product: Tensor
    inner_share: Tensor
    """Of weights that are inside."""
    squared: Tensor
    """Of delta."""
    inner_squared: Tensor
    floor: Tensor
    """Variance of four-bit rounding of the reference."""
    inner_floor: Tensor
    floor_shift: Tensor
    """Sum of delta in steps of that rounding, signs of gains and folds undone."""
    expected: Tensor | None = None
    """Variance of the candidate's own rounding."""
    inner_expected: Tensor | None = None
    shift: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSums:
    """Of all rows, and what the error is on the input."""

    rows: RowSums
    error: Tensor  # [out, tokens]
    output: Tensor  # [out, tokens] of the reference
    variance: Tensor | None  # [out, tokens] of the error under honest rounding


def pair_sums(pair: LinearPair, rounding: PairRounding | None) -> PairSums:
    """Take all rows once."""
    out, given = pair.reference.shape
    inputs = pair.input.T.contiguous()  # [in, tokens]
    squares = inputs.square()
    error = torch.empty(out, inputs.shape[1])
    variance = None if rounding is None else torch.zeros(out, inputs.shape[1])
    bias = pair.bias_difference()
    found = []
    for part in row_parts(pair.reference, PRODUCT_VALUES):
        delta = torch.empty(part.stop - part.start, given)
        expected = None if rounding is None else torch.empty_like(delta)
        for block in row_parts(pair.reference, within=part):
            found.append(_block(pair, rounding, block, delta, expected, part.start))
        torch.mm(delta, inputs, out=error[part])
        if variance is not None and expected is not None and (bias is not None or bool(delta.any())):
            torch.mm(expected, squares, out=variance[part])
    if bias is not None:
        error += bias[:, None]
    return PairSums(rows=_joined(found), error=error, output=_output(pair, inputs), variance=variance)


def _output(pair: LinearPair, inputs: Tensor) -> Tensor:
    if pair.output is not None and pair.output.shape == (inputs.shape[1], pair.reference.shape[0]):
        return pair.output.T
    output = pair.folded_reference() @ inputs
    return output if pair.reference_bias is None else output + pair.reference_bias[:, None]


def _block(
    pair: LinearPair, rounding: PairRounding | None, part: slice, deltas: Tensor, expected: Tensor | None, first: int
) -> RowSums:
    """Some rows; their delta and variance are left in `deltas` and `expected`, whose first row is `first`."""
    wanted, found = pair.folded_reference(part), pair.folded_candidate(part)
    peaks, is_finite = _peaks(found)
    if not bool(is_finite.all()):
        found = torch.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)
        peaks, _ = _peaks(found)
    here = slice(part.start - first, part.stop - first)
    delta = torch.sub(found, wanted, out=deltas[here])
    inside = _inside(wanted, peaks)
    squares, product = delta.square(), found * wanted
    inner = wanted * inside
    steps, size = group_steps(wanted)
    inner_counts = inside.reshape(len(wanted), -1, size).sum(-1)
    own: dict[str, Tensor] = {}
    if rounding is not None and expected is not None:
        spread = expected[here]
        spread.copy_(rounding.variance(part, steps, size))
        own = {"expected": spread.sum(1), "inner_expected": (spread * inside).sum(1)}
        if not rounding.is_plain:
            own["shift"] = _shift(pair, part, delta * (12 * spread).clamp_min(1e-30).rsqrt())
    in_floors = delta.reshape(len(wanted), -1, size) / steps.clamp_min(1e-30)[..., None]
    return RowSums(
        is_finite=is_finite,
        energy=wanted.square().sum(1),
        product=product.sum(1),
        inner_energy=inner.square().sum(1),
        inner_product=product.mul_(inside).sum(1),
        inner_share=inner_counts.sum(1) / wanted.shape[1],
        squared=squares.sum(1),
        inner_squared=squares.mul_(inside).sum(1),
        floor=steps.square().sum(1) * (size / 12),
        inner_floor=(steps.square() * inner_counts).sum(1) / 12,
        floor_shift=_shift(pair, part, in_floors.reshape(delta.shape)),
        **own,
    )


def _peaks(values: Tensor) -> tuple[Tensor, Tensor]:
    """[out, groups] the largest of every group, and [out] whether all are finite."""
    size = CLIP_GROUP if values.shape[1] % CLIP_GROUP == 0 else values.shape[1]
    least, largest = torch.aminmax(values.reshape(values.shape[0], -1, size), dim=-1)
    peaks = torch.maximum(-least, largest)
    return peaks, torch.isfinite(peaks).all(1)


def _inside(wanted: Tensor, peaks: Tensor) -> Tensor:
    """[out, in] 1 for weights well within what their group can hold. AWQ and searched scales clip those at the edge."""
    grouped = wanted.reshape(*peaks.shape, -1)
    return (grouped.abs() <= INNER_SHARE * peaks[..., None]).reshape(wanted.shape).float()


def _shift(pair: LinearPair, part: slice, in_steps: Tensor) -> Tensor:
    """Sum over each row. Negative gains and folds turn no sign."""
    found = in_steps.clamp_(-MAX_SHIFT, MAX_SHIFT)
    columns, rows = pair.column_factor(), pair.row_fold
    summed = found.sum(1) if columns is None else found @ columns.sign()
    return summed if rows is None else summed * rows[part].sign()


def _joined(blocks: list[RowSums]) -> RowSums:
    parts = {one.name: [getattr(block, one.name) for block in blocks] for one in fields(RowSums)}
    return RowSums(**{name: None if found[0] is None else torch.cat(found) for name, found in parts.items()})

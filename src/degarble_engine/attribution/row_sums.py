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
MAX_JUDGED_TOKENS = 192
"""z is an average over tokens: beyond so many it does not change any more, and each costs as much as a forward. All rows,
and for the error itself all tokens, are always taken."""
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
    judged: Tensor
    """Which tokens have a variance."""
    variance: Tensor | None  # [out, judged tokens] of the error under honest rounding


def pair_sums(pair: LinearPair, rounding: PairRounding | None) -> PairSums:
    """Take all rows once."""
    out, given = pair.reference.shape
    inputs = pair.input.T.contiguous()  # [in, tokens]
    judged = judged_tokens(inputs.shape[1])
    squares = inputs[:, judged].square()
    error = torch.empty(out, inputs.shape[1])
    variance = None if rounding is None else torch.zeros(out, len(judged))
    bias = pair.bias_difference()
    found: list[RowSums] = []
    for part in row_parts(pair.reference, PRODUCT_VALUES):
        delta = torch.empty(part.stop - part.start, given)
        expected = None if rounding is None else torch.empty_like(delta)
        first = len(found)
        for block in row_parts(pair.reference, within=part):
            found.append(_block(pair, rounding, block, delta, expected, part.start))
        is_changed = any(bool(one.squared.any()) for one in found[first:])
        torch.mm(delta, inputs, out=error[part])
        if variance is not None and expected is not None and (bias is not None or is_changed):
            torch.mm(expected, squares, out=variance[part])
    if bias is not None:
        error += bias[:, None]
    return PairSums(rows=_joined(found), error=error, output=_output(pair, inputs), judged=judged, variance=variance)


def judged_tokens(count: int) -> Tensor:
    """Tokens whose error is taken apart by sigma: all, or so many at equal distances, the first among them."""
    return torch.linspace(0, max(0, count - 1), min(count, MAX_JUDGED_TOKENS)).long()


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
    steps, size = group_steps(wanted)
    inner_counts = inside.reshape(len(wanted), -1, size).sum(-1)
    own: dict[str, Tensor] = {}
    if rounding is not None and expected is not None:
        spread = rounding.variance(part, steps, size, expected[here])
        own["expected"], own["inner_expected"] = _both(spread, inside)
        if not rounding.is_plain:
            own["shift"] = _shift(pair, part, spread.clamp_min(1e-30).rsqrt_().mul_(delta), 12**0.5)
    in_floors = delta.reshape(len(wanted), -1, size) / steps.clamp_min(1e-30)[..., None]
    energy, inner_energy = _both(wanted.square(), inside)
    product, inner_product = _both(found * wanted, inside)
    squared, inner_squared = _both(delta.square(), inside)
    return RowSums(
        is_finite=is_finite,
        energy=energy,
        product=product,
        inner_energy=inner_energy,
        inner_product=inner_product,
        inner_share=inner_counts.sum(1) / wanted.shape[1],
        squared=squared,
        inner_squared=inner_squared,
        floor=steps.square().sum(1) * (size / 12),
        inner_floor=(steps.square() * inner_counts).sum(1) / 12,
        floor_shift=_shift(pair, part, in_floors.reshape(delta.shape), 1.0),
        **own,
    )


def _both(values: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """[out] sums of all, and of those inside."""
    return values.sum(1), torch.linalg.vecdot(values, inside)


def _peaks(values: Tensor) -> tuple[Tensor, Tensor]:
    """[out, groups] the largest of every group, and [out] whether all are finite."""
    size = CLIP_GROUP if values.shape[1] % CLIP_GROUP == 0 else values.shape[1]
    peaks = values.abs().reshape(values.shape[0], -1, size).amax(-1)
    return peaks, torch.isfinite(peaks).all(1)


def _inside(wanted: Tensor, peaks: Tensor) -> Tensor:
    """[out, in] 1 for weights well within what their group can hold. AWQ and searched scales clip those at the edge."""
    sizes = wanted.abs().reshape(*peaks.shape, -1)
    inside = torch.empty_like(sizes)  # a comparison written as numbers is a fifth of one that is converted
    return torch.le(sizes, INNER_SHARE * peaks[..., None], out=inside).reshape(wanted.shape)


def _shift(pair: LinearPair, part: slice, values: Tensor, unit: float) -> Tensor:
    """Sum over each row of values in steps times `unit`. Negative gains and folds turn no sign."""
    found = values.clamp_(-MAX_SHIFT * unit, MAX_SHIFT * unit)
    columns, rows = pair.column_factor(), pair.row_fold
    summed = (found.sum(1) if columns is None else found @ columns.sign()) / unit
    return summed if rows is None else summed * rows[part].sign()


def _joined(blocks: list[RowSums]) -> RowSums:
    parts = {one.name: [getattr(block, one.name) for block in blocks] for one in fields(RowSums)}
    return RowSums(**{name: None if found[0] is None else torch.cat(found) for name, found in parts.items()})

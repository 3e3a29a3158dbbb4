"""Folds: scale that a quantiser moved from one weight into the next, which changes nothing, against one half forgotten.

Norm -> consumers: where a gain differs, each consumer either carries the inverse in its columns or does not. None does: the
norm is guilty. All do: a fold, silent. Some do: those that do not are guilty, which their folded weights show by themselves.

up -> down and v -> o (grouped heads: the mean over the query heads that share a row): the row ratio of the first, on
folded weights, times the column ratio of the second must be 1. The criterion is relative to the size of the fold: an
absolute one swallows a real factor of 0.95, and one for every row rejects real folds for their rounding noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from degarble_engine.attribution.linear_pair import LinearPair, NormPair
from degarble_engine.attribution.row_parts import row_parts

FOLDED_ROW = 0.05
"""|ratio - 1| from which a row takes part in a fold."""
LEFT_OVER = 0.3
"""Share of the fold that may be left in the product of both halves."""
ROW_LEFT_OVER, ROW_NOISE = 0.5, 3.0
"""The same for a single row, whose ratios carry rounding noise: so many medians of what is left are allowed for it."""
SMALLEST_NOISE = 1e-4
PARTNERS = (("up_proj", "down_proj"), ("v_proj", "o_proj"))


def is_norm_guilty(norm: NormPair) -> bool:
    """Whether the gain differs and no consumer makes up for it; those are then judged without the candidate's gain."""
    if not norm.differs:
        return False
    if not norm.consumers or not bool(torch.isfinite(norm.candidate).all()):
        return True
    if any(is_compensated(one, norm) for one in norm.consumers):
        return False
    for one in norm.consumers:
        one.candidate_gain = norm.reference
    return True


def is_compensated(pair: LinearPair, norm: NormPair) -> bool:
    """Which of the two explains the candidate's weight better, a factor for each row fitted."""
    ratio = norm.reference / torch.where(norm.candidate == 0, torch.ones_like(norm.candidate), norm.candidate)
    plain = compensated = 0.0
    for part in row_parts(pair.candidate):
        found, wanted = pair.candidate[part], pair.reference[part]
        plain += _residual(found, wanted)
        compensated += _residual(found, wanted * ratio)
    return compensated < plain


def _residual(found: Tensor, wanted: Tensor) -> float:
    factor = row_slopes(found, wanted)
    return float((found - factor[:, None] * wanted).pow(2).sum())


def row_slopes(found: Tensor, wanted: Tensor) -> Tensor:
    """Least-squares factor of every row of `wanted` in `found`; 1 for rows of zeros."""
    return _factors((found * wanted).sum(1), wanted.square().sum(1))


def _factors(product: Tensor, energy: Tensor) -> Tensor:
    return torch.where(energy > 0, product / energy.clamp_min(1e-30), torch.ones_like(energy))


def _row_factors(pair: LinearPair) -> Tensor:
    """[out] of the folded weights."""
    return torch.cat([row_slopes(pair.folded_candidate(part), pair.folded_reference(part))
                      for part in row_parts(pair.candidate)])  # fmt: skip


def _column_factors(pair: LinearPair) -> Tensor:
    """[in] of the weights as stored."""
    product, energy = torch.zeros(pair.reference.shape[1]), torch.zeros(pair.reference.shape[1])
    for part in row_parts(pair.candidate):
        wanted = pair.reference[part]
        product += (pair.candidate[part] * wanted).sum(0)
        energy += wanted.square().sum(0)
    return _factors(product, energy)


def divide_out_pair_folds(pairs: Sequence[LinearPair], num_heads: int, num_kv_heads: int) -> None:
    """Find folds between neighbours and set both halves' factors."""
    by_name = {pair.name: pair for pair in pairs}
    for pair in pairs:
        for first, second in PARTNERS:
            if pair.leaf == first:
                other = by_name.get(f"{pair.name.removesuffix(first)}{second}")
                if other is not None:
                    _divide_out(
                        pair, other, num_heads // max(1, num_kv_heads) if first == "v_proj" else 1, num_kv_heads
                    )


def _divide_out(first: LinearPair, second: LinearPair, shared: int, num_kv_heads: int) -> None:
    if first.reference.shape[0] * shared != second.reference.shape[1]:
        return
    rows, columns = _row_factors(first), _column_factors(second)
    if shared > 1:
        columns = columns.reshape(num_kv_heads, shared, -1).mean(1).flatten()
    taking_part = (rows - 1).abs() > FOLDED_ROW
    usable = taking_part & (rows > 0) & (columns > 0)
    if int(usable.sum()) < max(4, int(taking_part.sum()) // 2):
        return
    left, size = (rows * columns).log().abs(), rows.log().abs()
    noise = float(left[usable].median())
    if noise >= LEFT_OVER * float(size[usable].median()):
        return
    fits = (rows > 0) & (columns > 0) & (left < ROW_LEFT_OVER * size + ROW_NOISE * noise + SMALLEST_NOISE)
    between = (
        rows.clamp_min(1e-30) / columns.clamp_min(1e-30)
    ).sqrt()  # what either half lost to clipping stays in both
    factors = torch.where(fits, between, torch.ones_like(rows))
    first.row_fold = factors
    if shared > 1:
        factors = factors.reshape(num_kv_heads, 1, -1).expand(-1, shared, -1).flatten()
    second.column_fold = 1 / factors

"""Embedding, final norm and head: what the walk over layers does not see. Judged in weight space, read in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from degarble.errors import TargetError
from degarble_engine.attribution.grouping import Group
from degarble_engine.attribution.ladder import ALWAYS
from degarble_engine.attribution.linear_pair import SAME_GAIN
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel

MAX_RELATIVE = 0.5
MAX_SLOPE = 0.015
MAX_ROW_SLOPE = 0.6
MIN_ROW_COSINE = 0.7
"""Of a row with the reference's: two bits leave 0.9, another token's row 0.3."""
MAX_FINAL = 4096
"""Rows of the vocabulary looked at beside those of the text."""


def outside_groups(reference: WalkedModel, candidate: WalkedModel, batch: TokenBatch) -> Iterator[Group]:
    """Guilty matrices and norms outside the layers."""
    embedding = reference.embedding_name
    head = reference.head_name
    used = torch.unique(batch.ids[batch.valid])
    rows = min(reference.weights.num_rows(embedding), candidate.weights.num_rows(embedding))
    spread = torch.linspace(0, rows - 1, min(rows, MAX_FINAL)).long()
    ids = torch.unique(torch.cat([used[used < rows], spread]))
    yield from _matrix("embedding", embedding, embedding, reference, candidate, ids)
    if head != embedding or candidate.head_name != embedding:
        yield from _matrix("head", head, candidate.head_name, reference, candidate, ids)
    yield from _norms(reference, candidate)


def _matrix(
    kind: str, name: str, other: str, reference: WalkedModel, candidate: WalkedModel, ids: Tensor
) -> Iterator[Group]:
    wanted = reference.weights.rows(name, ids.numpy())
    found = candidate.weights.rows(other, ids.numpy())
    if found.shape != wanted.shape:
        raise TargetError(f"{other}: rows of {found.shape[1]} values, the reference has {wanted.shape[1]}")
    yield from judged_matrix(kind, other.removesuffix(".weight"), wanted, found, ids)


def judged_matrix(kind: str, name: str, wanted: Tensor, found: Tensor, ids: Tensor) -> Iterator[Group]:
    """Rows beside rows: finite, alike in direction and in size."""
    if not bool(torch.isfinite(found).all()):
        yield Group(kind=kind, layer=None, name=name, test="not_finite", value=float("inf"), score=ALWAYS)
        return
    energy = wanted.pow(2).sum(1)
    slope = float((found * wanted).sum() / energy.sum().clamp_min(1e-30))
    relative = float((found - wanted).norm() / wanted.norm().clamp_min(1e-30))
    cosine = nn.functional.cosine_similarity(found, wanted, dim=1)
    alive = energy > 1e-4 * energy.mean()
    wrong = alive & (cosine < MIN_ROW_COSINE)
    tests = {
        "relative": (relative, MAX_RELATIVE),
        "slope": (abs(slope - 1), MAX_SLOPE),
        "rows_of_others": (float(wrong.sum()), 0.5),
        "row_slope": (_row_slope(found, wanted, alive), MAX_ROW_SLOPE),
    }
    test = max(tests, key=lambda key: tests[key][0] / tests[key][1])
    value, bound = tests[test]
    if value > bound:
        note = f"token {int(ids[int(wrong.nonzero()[0])])} first" if test == "rows_of_others" else ""
        yield Group(
            kind=kind, layer=None, name=name, test=test, value=value, bound=bound, score=value / bound, note=note
        )


def _row_slope(found: Tensor, wanted: Tensor, alive: Tensor) -> float:
    slopes = (found * wanted).sum(1) / wanted.pow(2).sum(1).clamp_min(1e-30)
    return float((slopes[alive] - 1).abs().max()) if bool(alive.any()) else 0.0


def _norms(reference: WalkedModel, candidate: WalkedModel) -> Iterator[Group]:
    """The final norm may be folded into an untied head only; tools do not, so any difference is named."""
    others = {name: owner._parameters[attribute] for name, owner, attribute in candidate.skeleton.outside_layers()}
    for name, owner, attribute in reference.skeleton.outside_layers():
        mine, theirs = others.get(name), owner._parameters[attribute]
        if mine is None or theirs is None or mine.shape != theirs.shape:
            continue
        difference = (mine.float() - theirs.float()).abs() / theirs.float().abs().clamp_min(1e-6)
        worst = float(difference.nan_to_num(float("inf")).max())
        if worst > SAME_GAIN:
            yield Group(kind="final norm", layer=None, name=name.removesuffix(".weight"), test="gain", value=worst,
                        bound=SAME_GAIN, score=worst / SAME_GAIN)  # fmt: skip

"""Entropy of every row of a step's logits, which also says whether all of them are finite.

    x = logits - max     H = log sum exp(x) - sum exp(x) x / sum exp(x)      in nats, 0 to log(vocab)

An infinite maximum makes x NaN, and -inf gives 0 · -inf = NaN: so H is finite exactly if every logit is. Rows are taken
one by one: a row of 50,000 numbers stays in a core's cache, a batch of them does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def row_entropies(logits: Sequence[Tensor]) -> list[float]:
    """One number for each row of each [rows, vocab], in fp32; NaN for a row that is not finite."""
    found = [_entropy(row) for part in logits for row in part]
    return torch.stack(found).tolist() if found else []


def _entropy(row: Tensor) -> Tensor:
    shifted = row - row.amax()
    weights = shifted.exp()
    total = weights.sum()
    return total.log() - torch.dot(weights, shifted) / total

"""Entropy of every row of a step's logits, which also says whether all of them are finite.

    x = logits - max     H = log sum exp(x) - sum exp(x) x / sum exp(x)      in nats, 0 to log(vocab)

An infinite maximum makes x NaN, and -inf gives 0 · -inf = NaN (the compiled loop: infinity): so H is finite exactly if
every logit is. torch takes rows one by one: a row of 50,000 numbers stays in a core's cache, a batch of them does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from degarble_engine.compiled.kernels import loops_for


def row_entropies(logits: Sequence[Tensor]) -> list[float]:
    """One number for each row of each [rows, vocab], in fp32; not finite for a row that is not."""
    if not logits:
        return []
    loops = loops_for(logits[0])
    if loops is None:
        return [float(one) for one in torch.stack([_entropy(row) for part in logits for row in part])]
    whole = _joined(logits)
    found = np.empty(len(whole))
    loops.use_threads()
    loops.rows.entropy(whole.numpy(), found)
    return [float(one) for one in found]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """[all rows, vocab]: as they lie, where they are slices of one tensor that follow each other."""
    first, place = parts[0], parts[0].data_ptr()
    for part in parts:
        if not part.is_contiguous() or part.data_ptr() != place:
            return torch.cat(list(parts))
        place += part.nbytes
    if first.untyped_storage().nbytes() < place - first.untyped_storage().data_ptr():
        return torch.cat(list(parts))  # neighbours by chance
    return first.as_strided((sum(part.shape[0] for part in parts), first.shape[1]), (first.shape[1], 1))


def _entropy(row: Tensor) -> Tensor:
    shifted = row - row.amax()
    weights = shifted.exp()
    total = weights.sum()
    return total.log() - torch.dot(weights, shifted) / total

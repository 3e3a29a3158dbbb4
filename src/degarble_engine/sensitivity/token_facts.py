"""What a served model knows of each token of a text before it computes it: the predictor's features."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.sensitivity.token_predictor import features_of


def token_features(model: WalkedModel, batch: TokenBatch, states: Tensor) -> Tensor:
    """Of all valid tokens; `states` [tokens, hidden] are the model's own behind the last layer. [tokens, features]"""
    entropy, surprisal = _of_next(model, batch, states)
    position = (torch.cumsum(batch.valid.long(), 1) - 1)[batch.valid]
    before = torch.roll(torch.stack([entropy, surprisal]), 1, 1)  # what came out before is what this token came from
    ids, places = torch.unique(batch.ids[batch.valid], return_inverse=True)
    embedded = model.weights.rows(model.embedding_name, ids.numpy())[places]
    return features_of(embedded, before[0], before[1], position)


def _of_next(model: WalkedModel, batch: TokenBatch, states: Tensor) -> tuple[Tensor, Tensor]:
    """(entropy of each distribution, -log p of the token that follows), nats; the head in blocks under the largest logit."""
    following = torch.zeros_like(batch.ids)
    following[:, :-1] = batch.ids[:, 1:]
    labels = following[batch.valid]
    count = states.shape[0]
    top, total, weighted = torch.full((count,), -math.inf), torch.zeros(count), torch.zeros(count)
    own = torch.zeros(count)
    for rows in model.head_blocks():
        logits = model.logits(states, rows)
        higher = torch.maximum(top, logits.amax(1))
        shrink = (top - higher).exp().nan_to_num(0.0)
        weights = (logits - higher[:, None]).exp()
        total, weighted = total * shrink + weights.sum(1), weighted * shrink + (weights * logits).sum(1)
        top = higher
        is_here = (labels >= rows[0]) & (labels < rows[1])
        own[is_here] = logits[is_here, labels[is_here] - rows[0]]
    log_sum = top + total.log()
    return log_sum - weighted / total, log_sum - own

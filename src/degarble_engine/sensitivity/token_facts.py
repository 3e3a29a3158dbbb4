"""What a served model knows of each token of a text before it computes it: the predictor's features."""

from __future__ import annotations

import torch
from torch import Tensor

from degarble_engine.numerics.divergence import OnlineSum
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
    sums, weighted, own = OnlineSum(count), torch.zeros(count), torch.zeros(count)
    for rows in model.head_blocks():
        logits = model.logits(states, rows)
        shrink = sums.add(logits, rows[0])
        weighted = weighted * shrink + ((logits - sums.top[:, None]).exp() * logits).sum(1)
        is_here = (labels >= rows[0]) & (labels < rows[1])
        own[is_here] = logits[is_here, labels[is_here] - rows[0]]
    return sums.log() - weighted / sums.sum, sums.log() - own

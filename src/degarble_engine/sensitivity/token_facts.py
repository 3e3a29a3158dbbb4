"""What a served model knows of each token of a text before it computes it: the predictor's features."""

from __future__ import annotations

import torch
from torch import Tensor

from degarble_engine.numerics.next_token import next_token
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.sensitivity.token_predictor import features_of


def token_features(model: WalkedModel, batch: TokenBatch, states: Tensor) -> Tensor:
    """Of all valid tokens; `states` [tokens, hidden] are the model's own behind the last layer. [tokens, features]"""
    after = next_token(model, batch, states)
    position = (torch.cumsum(batch.valid.long(), 1) - 1)[batch.valid]
    before = torch.roll(
        torch.stack([after.entropy, after.surprisal]), 1, 1
    )  # what came out before is what this token came from
    ids, places = torch.unique(batch.ids[batch.valid], return_inverse=True)
    embedded = model.weights.rows(model.embedding_name, ids.numpy())[places]
    return features_of(embedded, before[0], before[1], position)

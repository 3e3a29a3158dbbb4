"""What a model says of the token that follows each position, from its last hidden states; the head is read in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from degarble_engine.numerics.divergence import OnlineSum
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class NextToken:
    """In nats, of all valid tokens."""

    surprisal: Tensor  # [tokens] -log p of the successor; of a text's last token a number without meaning
    entropy: Tensor  # [tokens] of the distribution


def next_token(model: WalkedModel, batch: TokenBatch, states: Tensor) -> NextToken:
    """`states` [tokens, hidden] are the model's own behind the last layer. Ids must be rows of its head."""
    following = torch.zeros_like(batch.ids)
    following[:, :-1] = batch.ids[:, 1:]
    labels = following[batch.valid]
    count = len(labels)
    sums, weighted, own = OnlineSum(count), torch.zeros(count), torch.zeros(count)
    for rows in model.head_blocks():
        logits = model.logits(states, rows)
        shrink = sums.add(logits, rows[0])
        weighted = weighted * shrink + ((logits - sums.top[:, None]).exp() * logits).sum(1)
        is_here = (labels >= rows[0]) & (labels < rows[1])
        own[is_here] = logits[is_here, labels[is_here] - rows[0]]
    return NextToken(surprisal=sums.log() - own, entropy=sums.log() - weighted / sums.sum)

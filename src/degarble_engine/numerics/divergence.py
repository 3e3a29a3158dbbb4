"""KL divergence and top-1 agreement at every position, without ever holding the logits of a whole vocabulary.

KL of reference to candidate, with a and b their logits, A and B the log-sums of their exponentials:

    KL = sum_v e^(a_v - A) (a_v - A - b_v + B) = E_a[a - b] - A + B

All three sums are kept online while the head is read in blocks of rows, each under the running maximum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from degarble.errors import TargetError
from degarble_engine.numerics.walked_model import WalkedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """One value a token, in nats."""

    by_token: Tensor  # [tokens]
    agrees: Tensor  # [tokens] bool: the same first choice
    reference_top: Tensor  # [tokens] token ids
    candidate_top: Tensor  # [tokens] token ids

    @property
    def kl(self) -> float:
        """Mean over tokens; infinite where the candidate's logits are not finite."""
        value = float(self.by_token.mean())
        return value if math.isfinite(value) else math.inf

    @property
    def top1_agreement(self) -> float:
        """Share of positions with the same first choice."""
        return float(self.agrees.float().mean())


class OnlineSum:
    """log sum exp over blocks of the vocabulary, and the first choice."""

    def __init__(self, tokens: int) -> None:
        self.top = torch.full((tokens,), -math.inf)
        self.sum = torch.zeros(tokens)
        self.choice = torch.zeros(tokens, dtype=torch.long)

    def add(self, logits: Tensor, offset: int) -> Tensor:
        """Take a block; the factor by which sums under the old maximum shrink."""
        best, where = logits.max(1)
        higher = torch.maximum(self.top, best)
        shrink = torch.where(torch.isinf(self.top), torch.zeros_like(self.top), (self.top - higher).exp())
        self.sum = self.sum * shrink + (logits - higher[:, None]).exp().sum(1)
        self.choice = torch.where(best > self.top, where + offset, self.choice)
        self.top = higher
        return shrink

    def log(self) -> Tensor:
        """log sum exp."""
        return self.top + self.sum.log()


def divergence(reference: WalkedModel, states: Tensor, candidate: WalkedModel, candidate_states: Tensor) -> Divergence:
    """Compare last hidden states of both, [tokens, hidden]. Raises TargetError where vocabularies differ in size."""
    size = reference.vocab_size
    if candidate.vocab_size < size:
        raise TargetError(f"the heads have {candidate.vocab_size} and {size} rows: logits cannot be compared")
    tokens = states.shape[0]
    one, two = OnlineSum(tokens), OnlineSum(tokens)
    weighted = torch.zeros(tokens)
    for rows in reference.head_blocks():
        values = reference.stored_head(rows)
        mine = reference.logits(states, rows, values)
        theirs = candidate.logits(candidate_states, rows, values if candidate.reads_head_of(reference) else None)
        shrink = one.add(mine, rows[0])
        two.add(theirs, rows[0])
        weighted = weighted * shrink + ((mine - one.top[:, None]).exp() * (mine - theirs)).sum(1)
    by_token = (weighted / one.sum - one.log() + two.log()).clamp_min(0)
    return Divergence(
        by_token=by_token, agrees=one.choice == two.choice, reference_top=one.choice, candidate_top=two.choice
    )

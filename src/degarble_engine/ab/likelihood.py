"""What both sides think of the same texts, teacher-forced: log-likelihoods, and KL to a reference.

All models walk in step, two layers of each in memory. Ids are the reference's (or side A's) for all of them: numbers
after different tokenisations cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from degarble.checkpoint.tensor_data import Array
from degarble.errors import EvidenceMissing, UsageError
from degarble_engine.ab.prompt import Prompt
from degarble_engine.numerics.divergence import divergence
from degarble_engine.numerics.next_token import next_token
from degarble_engine.numerics.tokens import TokenBatch, batch_of, tokenizer_of
from degarble_engine.numerics.walk import Watch, final_states
from degarble_engine.numerics.walked_model import WalkedModel

TOKENS_AT_ONCE = 1 << 13


class Scores:
    """Sums over the positions of every prompt, [prompts, sides]."""

    def __init__(self, num_prompts: int, num_sides: int) -> None:
        self.tokens: Array = np.zeros(num_prompts)
        """Positions that have a next token."""
        self.nats: Array = np.zeros((num_prompts, num_sides))
        """Of -log p(next token)."""
        self.kl: Array = np.zeros((num_prompts, num_sides))
        self.agrees: Array = np.zeros((num_prompts, num_sides))


def scores(
    prompts: Sequence[Prompt],
    sides: Sequence[WalkedModel],
    reference: WalkedModel | None,
    max_tokens: int,
    progress: Watch | None = None,
) -> Scores:
    """One text a prompt: the prompt, and behind it the first good answer. Raises EvidenceMissing without a tokenizer."""
    models = [*([reference] if reference is not None else []), *sides]
    tokenizer = next((one for model in models if (one := tokenizer_of(model.evidence)) is not None), None)
    if tokenizer is None:
        raise EvidenceMissing("no tokenizer.json that could be read")
    ids = [tokenizer.encode(_whole(prompt)).ids[:max_tokens] for prompt in prompts]
    found = Scores(len(prompts), len(sides))
    for numbers in _batches(ids):
        batch = batch_of([ids[number] for number in numbers], "prompts")
        states = final_states(models, batch)
        for at, model in enumerate(sides):
            own = states[at + len(models) - len(sides)]
            _require_rows(model, batch)
            _add(found.nats, numbers, at, batch, next_token(model, batch, own).surprisal)
            if reference is not None:
                apart = divergence(reference, states[0], model, own)
                _add(found.kl, numbers, at, batch, apart.by_token)
                _add(found.agrees, numbers, at, batch, apart.agrees.float())
        found.tokens[numbers] = (batch.valid.sum(1) - 1).numpy()
        if progress is not None:
            progress(numbers[-1] + 1, len(prompts))
    if not found.tokens.sum():
        raise UsageError("--prompts: every text has one token at most, which leaves nothing to score")
    return found


def _whole(prompt: Prompt) -> str:
    return " ".join([prompt.text, *prompt.references[:1]])


def _batches(ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Neighbours, as many as fit; those without two tokens are left out."""
    batches: list[list[int]] = []
    width = 0
    for number, own in enumerate(ids):
        if len(own) < 2:
            continue
        width = max(width, len(own))
        if not batches or width * (len(batches[-1]) + 1) > TOKENS_AT_ONCE:
            batches.append([])
            width = len(own)
        batches[-1].append(number)
    return batches


def _add(into: Array, numbers: Sequence[int], side: int, batch: TokenBatch, by_token: Tensor) -> None:
    """Sums over all positions but the last of each text."""
    wide = torch.zeros(batch.ids.shape, dtype=torch.float64)
    wide[batch.valid] = by_token.double()
    last = batch.valid.sum(1) - 1
    wide[torch.arange(len(wide)), last] = 0
    into[numbers, side] = wide.sum(1).numpy()


def _require_rows(model: WalkedModel, batch: TokenBatch) -> None:
    """Raises UsageError for a tokenizer whose ids the model lacks."""
    largest = int(batch.ids.max())
    if largest >= model.vocab_size:
        raise UsageError(f"{model.file}: its head has {model.vocab_size} rows, the tokenizer gives id {largest}")

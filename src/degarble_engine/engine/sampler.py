"""From logits to tokens: penalties, temperature, top-k, top-p, min-p, each request with its own generator.

A request's draw depends on its logits, its parameters and its seed alone. Tokens are drawn by the exponential race
(Efraimidis and Spirakis, 2006): argmax of p_i / e_i, with e_i exponential, is i with probability p_i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import torch
from torch import Tensor

from degarble_engine.engine.sampling_params import SamplingParams

NEAR = 512
"""So many of the most likely tokens are sorted before the whole vocabulary is."""


class Sampled(msgspec.Struct, frozen=True):
    """One token, and what was likely instead."""

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    """(token id, log probability) of the most likely ones, by the model's own distribution."""


class TokenCounts:
    """What a request has seen, for penalties: its prompt and its output apart, as vLLM does."""

    def __init__(self, prompt_ids: Sequence[int], vocab_size: int) -> None:
        self._is_in_prompt = torch.zeros(vocab_size, dtype=torch.bool)
        self._is_in_prompt[torch.tensor([one for one in prompt_ids if one < vocab_size], dtype=torch.long)] = True
        self._counts = torch.zeros(vocab_size)

    def add(self, token_id: int) -> None:
        """One more sampled token."""
        self._counts[token_id] += 1

    def penalised(self, logits: Tensor, params: SamplingParams) -> Tensor:
        """[vocab] -> [vocab]; repetition as CTRL (Keskar et al., 2019), the others as OpenAI's API has them."""
        if params.repetition_penalty != 1.0:
            is_seen = self._is_in_prompt | (self._counts > 0)
            factor = params.repetition_penalty
            logits = torch.where(is_seen, torch.where(logits > 0, logits / factor, logits * factor), logits)
        logits = logits - params.frequency_penalty * self._counts
        return logits - params.presence_penalty * (self._counts > 0)


def sample(
    logits: Tensor,
    params: SamplingParams,
    generator: torch.Generator,
    counts: TokenCounts | None = None,
    banned_ids: Sequence[int] = (),
    allowed: Tensor | None = None,
) -> Sampled:
    """One token from logits [vocab] in fp32. `banned_ids`: ends that may not come yet; `allowed`: see guide.py."""
    changed = adjusted(logits, params, counts, banned_ids)
    if allowed is not None:
        changed = changed.masked_fill(~allowed, float("-inf"))
    token_id = _most_likely(changed) if params.is_greedy else _drawn(changed / params.temperature, params, generator)
    if params.logprobs is None:
        return Sampled(token_id)
    logprobs = logits.log_softmax(-1)
    top = logprobs.topk(params.logprobs) if params.logprobs else None
    likely = tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)) if top is not None else ()
    return Sampled(token_id, float(logprobs[token_id]), likely)


def adjusted(
    logits: Tensor, params: SamplingParams, counts: TokenCounts | None, banned_ids: Sequence[int] = ()
) -> Tensor:
    """Logits after penalties, biases and bans."""
    if counts is not None:
        logits = counts.penalised(logits, params)
    if params.logit_bias or banned_ids:
        logits = logits.clone()
        for token_id, bias in _inside(params.logit_bias, logits.shape[0]):
            logits[token_id] += bias
        for token_id in banned_ids:
            if token_id < logits.shape[0]:
                logits[token_id] = float("-inf")
    return logits


def _inside(bias: Mapping[int, float], vocab_size: int) -> list[tuple[int, float]]:
    return [(token_id, value) for token_id, value in bias.items() if 0 <= token_id < vocab_size]


def _drawn(logits: Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    probabilities = kept(logits, params).softmax(-1)
    race = torch.empty_like(probabilities).exponential_(generator=generator)
    return _most_likely(probabilities / race)


def _most_likely(values: Tensor) -> int:
    """Where the largest is, the first of equals; numpy's search takes a tenth of torch's time."""
    return int(values.numpy().argmax()) if values.device.type == "cpu" else int(values.argmax())


def kept(logits: Tensor, params: SamplingParams) -> Tensor:
    """[vocab] with -inf where top-k, top-p or min-p cut, in this order; the most likely token always stays."""
    if 0 < params.top_k < logits.shape[0]:
        logits = logits.masked_fill(logits < logits.topk(params.top_k).values[-1], float("-inf"))
    if params.top_p < 1.0:
        logits = logits.masked_fill(~_nucleus(logits.softmax(-1), params.top_p), float("-inf"))
    if params.min_p > 0.0:
        likely = logits.softmax(-1)
        logits = logits.masked_fill(likely < params.min_p * likely.max(), float("-inf"))
    return logits


def _nucleus(likely: Tensor, top_p: float) -> Tensor:
    """[vocab] bool: the most likely tokens that reach `top_p` together (Holtzman et al., 2020). Few are sorted, if they do."""
    for size in sorted({min(NEAR, likely.shape[0]), likely.shape[0]}):
        ordered, order = likely.topk(size)
        total = ordered.cumsum(-1)
        if total[-1] >= top_p or size == likely.shape[0]:
            break
    is_in = torch.zeros_like(likely, dtype=torch.bool)
    return is_in.scatter(0, order, total - ordered < top_p)  # what comes before is not enough yet

"""What an endpoint says when its logits are no numbers.

A sampler that takes the largest of NaNs gives a constant id: 0 in most engines (`!` in the vocabularies of Qwen, Llama 3 and
GPT-2; an invisible token in DeepSeek-V3's, Gemma's and SmolLM's, which is empty text until max_tokens), one past the end of the
vocabulary or of a kernel's block elsewhere (8191: vllm-project/vllm#53029). Log probabilities are NaN, or null in JSON.
"""

from __future__ import annotations

import math

import msgspec

from degarble.probe.exchange import Exchange

MIN_TOKENS = 8
"""Of one answer, to tell anything by its text or ids."""
BLOCKS = frozenset((1 << power) - 1 for power in range(9, 17))
"""Last ids of kernels' blocks: 511 to 65535."""


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """What one answer shows."""

    kind: str
    """logprob, ids, exclamation or empty."""
    text: str
    token_id: int | None = None
    position: int | None = None

    @property
    def is_proof(self) -> bool:
        """Numbers that are none prove it; a text alone may be a model's own."""
        return self.kind == "logprob"


def find_signature(exchange: Exchange, vocabulary: int | None = None) -> Signature | None:
    """The strongest one. `vocabulary`: number of ids, where it is known."""
    answer = exchange.answer
    if answer is None:
        return None
    for at, score in enumerate(answer.scores):
        if score.logprob is None or math.isnan(score.logprob) or score.logprob == math.inf:
            shown = "null" if score.logprob is None else str(score.logprob)
            return Signature(kind="logprob", text=f"the log probability of a sampled token is {shown}", position=at)
    ids = set(answer.token_ids)
    suspects = {0, *BLOCKS, *(() if vocabulary is None else (vocabulary, vocabulary - 1))}
    if len(answer.token_ids) >= MIN_TOKENS and len(ids) == 1 and ids <= suspects:
        (only,) = ids
        return Signature(kind="ids", text=f"all {len(answer.token_ids)} tokens are id {only}", token_id=only)
    body = answer.text.strip()
    if len(body) >= MIN_TOKENS and set(body) == {"!"}:
        return Signature(kind="exclamation", text=f"{len(body)} exclamation marks and nothing else")
    ended = answer.finish_reason == "length" and answer.completion_tokens == exchange.ask.max_tokens >= MIN_TOKENS
    if ended and not body and not answer.reasoning:
        return Signature(kind="empty", text=f"{answer.completion_tokens} tokens that have no text")
    return None

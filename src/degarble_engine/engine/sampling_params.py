"""What a request asks of the sampler, under the names of OpenAI's API and vLLM's SamplingParams."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from degarble.errors import UsageError

MAX_LOGPROBS = 20
MAX_STOPS = 16


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Raises UsageError for values that mean nothing."""

    temperature: float = 1.0
    """0: the most likely token."""
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1: all."""
    min_p: float = 0.0
    """Tokens less likely than this share of the most likely one are out."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logprobs: int | None = None
    """That many of the most likely tokens with each sampled one; 0: the sampled one's alone."""
    logit_bias: Mapping[int, float] = {}
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    max_tokens: int = 16
    min_tokens: int = 0

    def __post_init__(self) -> None:
        bounds = {
            "temperature": (0.0, 2.0), "top_p": (1e-6, 1.0), "min_p": (0.0, 1.0), "presence_penalty": (-2.0, 2.0),
            "frequency_penalty": (-2.0, 2.0), "repetition_penalty": (1e-2, 1e2), "top_k": (-1, 1 << 31),
            "max_tokens": (1, 1 << 31), "min_tokens": (0, self.max_tokens), "logprobs": (0, MAX_LOGPROBS),
        }  # fmt: skip
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:  # false for a NaN
                raise UsageError(f"{name} must be from {low:g} to {high:g}, found {value}")
        if len(self.stop) > MAX_STOPS or any(not text for text in self.stop):
            raise UsageError(f"stop must be at most {MAX_STOPS} strings, none of them empty")

    @property
    def is_greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0.0

    @property
    def changes_logits(self) -> bool:
        """Whether anything but the temperature changes what is likely."""
        has_penalty = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        return bool(has_penalty or self.logit_bias or self.min_tokens)

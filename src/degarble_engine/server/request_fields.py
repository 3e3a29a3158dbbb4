"""What the two generating endpoints have in common: fields, and what they mean to the engine.

Unknown fields are refused, as OpenAI does: a misspelt `temprature` would otherwise be a silent default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from degarble.errors import UsageError
from degarble.kvcache.namespace import PLAIN, Namespace
from degarble_engine.engine.sampling_params import MAX_LOGPROBS, SamplingParams
from degarble_engine.server.api_error import invalid
from degarble_engine.server.structured import StructuredFields

PASSED = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
"""Fields that the engine takes as they are; the model's generation_config.json may give defaults."""
MAX_BIASES = 1024
MAX_STOP_CHARS = 1024
MAX_SEED = (1 << 63) - 1


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`stream_options`."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    """Taken and not obeyed: usage comes once, at the end."""


class GenerationFields(StructuredFields, kw_only=True, forbid_unknown_fields=True):
    """Fields of both endpoints. None: not given, or null."""

    model: str | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = None
    min_tokens: int = 0
    logit_bias: dict[int, float] | None = None
    skip_special_tokens: bool = True
    return_token_ids: bool = False
    cache_salt: str | None = None
    """Requests share cached prefixes only with those that give the same."""
    user: str | None = None
    metadata: dict[str, str] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def namespace(self) -> Namespace:
        """Whose prefixes may be shared."""
        return Namespace(salt=self.cache_salt) if self.cache_salt else PLAIN

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def require_sound(self, vocab_size: int) -> None:
        """Raise ApiError for what no type can say."""
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options is for stream: true", "stream_options")
        if self.n is not None and self.n < 1:
            raise invalid(f"n must be at least 1, found {self.n}", "n")
        if self.seed is not None and not -MAX_SEED <= self.seed <= MAX_SEED:
            raise invalid("seed must fit into 64 bits", "seed")
        if any(len(stop) > MAX_STOP_CHARS for stop in self.stops):
            raise invalid(f"a stop string may have {MAX_STOP_CHARS} characters", "stop")
        biases = self.logit_bias or {}
        if len(biases) > MAX_BIASES:
            raise invalid(f"{len(biases)} biases, more than {MAX_BIASES}", "logit_bias")
        for token_id, bias in biases.items():
            if not (0 <= token_id < vocab_size and -100 <= bias <= 100):
                raise invalid(
                    f"token ids are from 0 to {vocab_size - 1} and biases from -100 to 100, found {token_id}: {bias}",
                    "logit_bias",
                )
        if self.form is not None and (self.ignore_eos or self.min_tokens):
            name = "ignore_eos" if self.ignore_eos else "min_tokens"
            raise invalid(f"{self.form.param} and {name} exclude each other: a form says where it ends", name)
        for token_id in self.stop_token_ids or ():
            if not 0 <= token_id < vocab_size:
                raise invalid(f"token ids are from 0 to {vocab_size - 1}, found {token_id}", "stop_token_ids")

    def sampling(self, defaults: Mapping[str, Any], *, max_tokens: int, logprobs: int | None) -> SamplingParams:
        """What the engine is asked for. Raises ApiError that names the field."""
        if logprobs is not None and not 0 <= logprobs <= MAX_LOGPROBS:
            raise invalid(f"at most {MAX_LOGPROBS} log probabilities a token, found {logprobs}", "logprobs")
        own = {name: value for name in PASSED if (value := getattr(self, name)) is not None}
        try:
            return SamplingParams(
                **{**defaults, **own},
                seed=self.seed,
                logprobs=logprobs,
                logit_bias=self.logit_bias or {},
                stop=self.stops,
                stop_token_ids=tuple(self.stop_token_ids or ()),
                ignore_eos=self.ignore_eos,
                max_tokens=max_tokens,
                min_tokens=self.min_tokens,
            )
        except UsageError as error:
            name = str(error).partition(" ")[0]
            raise invalid(str(error), name if name in self.__struct_fields__ else None) from None


def seeded(params: SamplingParams, number: int) -> SamplingParams:
    """Parameters of the number-th of `n` answers: with one seed for all, they would be one answer."""
    if params.seed is None or number == 0:
        return params
    return msgspec.structs.replace(params, seed=(params.seed + number) & MAX_SEED)

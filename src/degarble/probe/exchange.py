"""Records of one question and its answer: all that the rules of endpoints are judged by."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """Which of the two APIs a question goes to."""

    CHAT = "chat"
    TEXT = "text"

    @property
    def path(self) -> str:
        """Below the address of the endpoint."""
        return "/v1/chat/completions" if self is Kind.CHAT else "/v1/completions"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One question. All are greedy: temperature 0."""

    kind: Kind
    prompt: str
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    is_stream: bool = False


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled token with the log probabilities at its position."""

    token: str
    logprob: float | None
    """None where the endpoint wrote `null`."""
    data: bytes | None = None
    """The token's own bytes, where the endpoint tells them."""
    top: tuple[tuple[str, float | None], ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered, whole or put together from a stream."""

    text: str = ""
    reasoning: str = ""
    """Text that the endpoint keeps apart (`reasoning_content`)."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    scores: tuple[Score, ...] = ()
    """Empty where no log probabilities were told."""
    token_ids: tuple[int, ...] = ()
    prompt_token_ids: tuple[int, ...] = ()
    fingerprint: str | None = None
    """The endpoint's `system_fingerprint`."""


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a stream that a client cannot rely on."""

    what: str
    line: int
    """Of the stream, from 1."""
    expected: str
    found: str


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The form of one stream."""

    num_chunks: int
    has_done: bool
    breaches: tuple[Breach, ...] = ()


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One question with its answer, or why there is none."""

    probe: str
    label: str
    """Unique within the probe; what a finding calls the request."""
    ask: Ask
    group: str = ""
    """Under which circumstances it was asked: alone, in a batch …"""
    size: int = 0
    """Length that the probe varies, in the unit it says."""
    expected: str | None = None
    """Text that a good answer holds."""
    answer: Answer | None = None
    stream: Stream | None = None
    failure: str | None = None
    is_refused: bool = False
    """The failure is a refusal (the endpoint does not offer this), not trouble."""

    @property
    def name(self) -> str:
        """For reports: `batch/english`, with the circumstances where there are any."""
        return f"{self.probe}/{self.label}" + (f"/{self.group}" if self.group else "")

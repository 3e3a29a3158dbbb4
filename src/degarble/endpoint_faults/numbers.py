"""Faults of logits and distributions: RUN801, RUN802, RUN808, RUN812."""

from __future__ import annotations

import math

from msgspec.structs import replace

from degarble.endpoint_faults.fake_endpoint import FakeEndpoint, Question, Token, token_of
from degarble.endpoint_faults.interface import endpoint_fault


@endpoint_fault("RUN801")
def nan_to_exclamation_marks(endpoint: FakeEndpoint) -> None:
    """Every logit is NaN: id 0, which is "!", and log probabilities that are null."""
    mark = Token(text="!", token_id=0, logprob=None, top=(), data=b"!")
    endpoint.tokens.append(lambda question, tokens: [mark] * question.max_tokens)


@endpoint_fault("RUN801")
def nan_to_invisible_token(endpoint: FakeEndpoint) -> None:
    """The same where id 0 has no text and no log probabilities are told: empty answers that cost all their tokens."""
    _without_scores(endpoint)
    hidden = Token(text="", token_id=0, logprob=None, top=(), data=b"")
    endpoint.tokens.append(lambda question, tokens: [hidden] * question.max_tokens)
    endpoint.document.append(_cut_off)


@endpoint_fault("RUN801")
def nan_to_last_id_of_a_block(endpoint: FakeEndpoint) -> None:
    """A sampler's kernel gives 8191, the last id of its block, whatever the logits."""
    _without_scores(endpoint)
    last = replace(token_of(" unter"), token_id=8191)
    endpoint.tokens.append(lambda question, tokens: [last] * question.max_tokens)


@endpoint_fault("RUN802")
def loop_of_a_damaged_model(endpoint: FakeEndpoint) -> None:
    """Long answers become one word of twenty that are as good as each other."""
    even = tuple((f" word{at}", math.log(0.045)) for at in range(20))
    pair = [replace(token_of(text), top=even, logprob=even[0][1]) for text in (" erc", " ula")]

    def looped(question: Question, tokens: list[Token]) -> list[Token]:
        return [pair[at % 2] for at in range(question.max_tokens)] if question.max_tokens > 100 else tokens

    endpoint.tokens.append(looped)


@endpoint_fault("RUN808")
def logits_told_as_log_probabilities(endpoint: FakeEndpoint) -> None:
    """The numbers are logits: above 0."""
    endpoint.tokens.append(
        lambda question, tokens: [
            replace(token, logprob=7.5, top=tuple((text, 7.5 - at) for at, (text, _) in enumerate(token.top)))
            for token in tokens
        ]
    )


@endpoint_fault("RUN808")
def probabilities_above_one(endpoint: FakeEndpoint) -> None:
    """The softmax ran over half of the vocabulary: alternatives add up to 1.9."""
    endpoint.tokens.append(
        lambda question, tokens: [
            replace(token, top=((token.text, math.log(0.7)), ("~", math.log(0.7)), ("~~", math.log(0.5))))
            for token in tokens
        ]
    )


@endpoint_fault("RUN812", needs_reference=True)
def flattened_distribution(endpoint: FakeEndpoint) -> None:
    """Every token is sampled right, and the model is certain of nothing."""
    chances = (0.26, 0.24, 0.22)
    endpoint.tokens.append(
        lambda question, tokens: [
            replace(
                token,
                logprob=math.log(chances[0]),
                top=tuple((text, math.log(chance)) for (text, _), chance in zip(token.top, chances, strict=True)),
            )
            for token in tokens
        ]
    )


def _without_scores(endpoint: FakeEndpoint) -> None:
    def bare(question: Question, document: dict[str, object]) -> dict[str, object]:
        choices = document["choices"]
        assert isinstance(choices, list)
        choices[0]["logprobs"] = None
        return document

    endpoint.document.append(bare)


def _cut_off(question: Question, document: dict[str, object]) -> dict[str, object]:
    choices = document["choices"]
    assert isinstance(choices, list)
    choices[0]["finish_reason"] = "length"
    return document

"""Faults that show under circumstances only: RUN806, RUN807, RUN811, RUN813."""

from __future__ import annotations

from degarble.endpoint_faults.fake_endpoint import FakeEndpoint, Question, Token, cut, token_of
from degarble.endpoint_faults.interface import endpoint_fault

MAX_SEEN = 500
"""Pieces of the prompt that a broken window reaches."""


def strange(tokens: list[Token], start: int = 2) -> list[Token]:
    """From a position on, words that were nowhere among the alternatives."""
    return [*tokens[:start], *(token_of(f" {token.text[::-1].strip()}q") for token in tokens[start:])]


@endpoint_fault("RUN806")
def rows_of_a_batch_mixed_up(endpoint: FakeEndpoint) -> None:
    """Requests that are computed together change each other's answers."""
    endpoint.waits_for_company = True
    endpoint.tokens.append(lambda question, tokens: strange(tokens) if question.is_in_company else tokens)


@endpoint_fault("RUN807")
def stale_block_in_the_prefix_cache(endpoint: FakeEndpoint) -> None:
    """A long prompt that was seen before is answered from a block that holds something else."""

    def stale(question: Question, tokens: list[Token]) -> list[Token]:
        is_hit = question.num_before > 0 and len(cut(question.prompt)) >= 28
        return strange(tokens) if is_hit else tokens

    endpoint.tokens.append(stale)


@endpoint_fault("RUN811")
def window_too_short(endpoint: FakeEndpoint) -> None:
    """What stands further back than a window is not seen, though the model needs it."""

    def blind(question: Question, tokens: list[Token]) -> list[Token]:
        return strange(tokens, 0) if len(cut(question.prompt)) > MAX_SEEN else tokens

    endpoint.tokens.append(blind)


@endpoint_fault("RUN813")
def colons_become_underscores(endpoint: FakeEndpoint) -> None:
    """The exporter renames what a scraper negotiates."""
    endpoint.metrics = lambda text: text.replace(":", "_")


@endpoint_fault("RUN813")
def names_of_an_older_version(endpoint: FakeEndpoint) -> None:
    """One metric has its old name again."""
    endpoint.metrics = lambda text: text.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")

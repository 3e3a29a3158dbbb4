"""Faults of text and its form: RUN803, RUN804, RUN805, RUN809, RUN810."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from degarble.endpoint_faults.fake_endpoint import FakeEndpoint, Question, Token, token_of
from degarble.endpoint_faults.interface import endpoint_fault


@endpoint_fault("RUN803")
def decoded_twice(endpoint: FakeEndpoint) -> None:
    """UTF-8 is read as Latin-1 on its way out."""
    endpoint.tokens.append(
        lambda question, tokens: [
            replace(token, text=token.text.encode().decode("latin-1"), data=token.text.encode()) for token in tokens
        ]
    )


@endpoint_fault("RUN803")
def decoded_token_by_token(endpoint: FakeEndpoint) -> None:
    """Characters of several tokens become replacement characters, in the middle of answers."""
    endpoint.tokens.append(
        lambda question, tokens: [
            token if token.text.isascii() else replace(token, text="\ufffd" * len(token.text.encode()), data=token.data)
            for token in tokens
        ]
    )


@endpoint_fault("RUN804")
def ends_without_a_reason(endpoint: FakeEndpoint) -> None:
    """Streams lose their last chunks, and answers their finish reason."""

    def reasonless(question: Question, document: dict[str, Any]) -> dict[str, Any]:
        document["choices"][0]["finish_reason"] = None
        return document

    endpoint.document.append(reasonless)
    endpoint.stream.append(lambda question, events: events[:-2])


@endpoint_fault("RUN805")
def second_bos(endpoint: FakeEndpoint) -> None:
    """BOS is written by the template and again by the tokenizer."""
    endpoint.prompt_tokens = lambda question, count: count + 1


@endpoint_fault("RUN805")
def tokenizer_of_another_model(endpoint: FakeEndpoint) -> None:
    """Every character outside ASCII costs two tokens more."""
    endpoint.prompt_tokens = lambda question, count: count + 2 * sum(not letter.isascii() for letter in question.prompt)


@endpoint_fault("RUN809")
def end_of_turn_is_not_the_end(endpoint: FakeEndpoint) -> None:
    """Answers go on behind the end of the turn, and show it."""
    leaked = [token_of(text) for text in ("<|im_end|>", "\n", "<|im_start|>", "user", "\n")]

    def went_on(question: Question, tokens: list[Token]) -> list[Token]:
        return [*tokens[:10], *leaked, *tokens[10:]][: question.max_tokens]

    endpoint.tokens.append(went_on)


@endpoint_fault("RUN809")
def stop_strings_ignored(endpoint: FakeEndpoint) -> None:
    """Stop strings end nothing."""
    endpoint.ignores_stops = True


@endpoint_fault("RUN810")
def events_run_together(endpoint: FakeEndpoint) -> None:
    """A proxy drops the empty lines between events."""
    endpoint.stream.append(
        lambda question, events: [event.replace(b"\n\n", b"\n") for event in events[:-2]] + events[-2:]
    )


@endpoint_fault("RUN810")
def characters_cut_in_half(endpoint: FakeEndpoint) -> None:
    """Chunks are cut by bytes, so that their JSON holds halves of characters."""

    def halved(question: Question, events: list[bytes]) -> list[bytes]:
        return [event.replace("🎉".encode(), b"\xf0\x9f").replace("山".encode(), b"\xe5\xb1") for event in events]

    endpoint.stream.append(halved)


@endpoint_fault("RUN810")
def text_behind_the_end(endpoint: FakeEndpoint) -> None:
    """The chunk with the finish reason overtakes the last text."""
    endpoint.stream.append(lambda question, events: [*events[:-3], events[-2], events[-3], events[-1]])

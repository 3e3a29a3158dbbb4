"""Marker tables of small tokenizers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from degarble.templates.markers import MarkerTable
from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.interface import AddedToken, Tokenizer
from degarble.tokenizer.known_tokens import KnownTokens


def marker_table(
    added: Iterable[str],
    *,
    pieces: Sequence[str] = (),
    single_word: bool = False,
    model: str = "BPE",
) -> MarkerTable:
    """A tokenizer with these added tokens behind these pieces."""
    tokens = list(added)
    tokenizer = Tokenizer(
        file="tokenizer.json",
        kind="byte-level",
        pieces=[*pieces, *tokens],
        added_tokens={
            at: AddedToken(token_id=at, content=text, special=True, single_word=single_word)
            for at, text in enumerate(tokens, start=len(pieces))
        },
        build_table=lambda: ByteTable(pieces=[]),
        pipeline={"model": {"type": model}},
    )
    return MarkerTable(KnownTokens(tokenizer, ()))

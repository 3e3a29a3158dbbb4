"""Evidence about tokens across files: what is known of each, which family the vocabulary is of, what other files hold."""

from __future__ import annotations

from degarble.evidence.store import provides
from degarble.tokenizer.families import Family, identify
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim


@provides("known_tokens")
def known_tokens(tokenizer: Tokenizer, token_claims: tuple[TokenClaim, ...]) -> KnownTokens:
    """Texts and ids of the tokenizer and of the files that add to it."""
    return KnownTokens(tokenizer, token_claims)


@provides("token_families")
def token_families(tokenizer: Tokenizer) -> tuple[Family, ...]:
    """The published family of the vocabulary; several where nothing tells them apart, empty if nobody knows it."""
    return identify(tokenizer.pieces)

"""One finding for many statements of one file: where they stand, and how many they are."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from degarble.finding import Location
from degarble.tokenizer.token_claims import TokenClaim

Key = TypeVar("Key", bound=Hashable)
MAX_PLACES = 1000
"""A damaged file can hold a million statements; the report shows twenty and counts a thousand."""
MAX_SHOWN = 80


def place_of(claim: TokenClaim) -> Location:
    """Where a statement stands."""
    text = None if claim.text is None else claim.text[:MAX_SHOWN]
    return Location(file=claim.file, key=claim.key, token=text, token_id=claim.token_id)


def places_of(claims: Sequence[TokenClaim], *others: Location) -> tuple[Location, ...]:
    """Where several stand, the first first, and further places after them."""
    return (*(place_of(claim) for claim in claims[:MAX_PLACES]), *others)


def and_more(claims: Sequence[TokenClaim]) -> str:
    """`; 3 more of the kind`, or nothing."""
    return f"; {len(claims) - 1} more of the kind in this file" if len(claims) > 1 else ""


def grouped(pairs: Iterable[tuple[Key, TokenClaim]]) -> dict[Key, list[TokenClaim]]:
    """Statements by what they have in common, in the order of the files."""
    groups: dict[Key, list[TokenClaim]] = {}
    for key, claim in pairs:
        groups.setdefault(key, []).append(claim)
    return groups

"""What two vocabularies say differently, whatever each of them is stored in: pieces by id, merges, flags of added tokens.

A GGUF file has the strings of tokenizer.json, ids past the vocabulary as `[PAD151669]`, and types in place of flags: its
converter makes a control token of everything that looks like one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import zip_longest

import msgspec

from degarble.tokenizer.cut_families import PADDING
from degarble.tokenizer.interface import AddedToken, Tokenizer

MAX_EXAMPLES = 20


class Kind(StrEnum):
    """What differs."""

    CHANGED = "changed"
    """An id has another text."""
    RENAMED = "renamed"
    """An added token has another text: a reserved one that got a name, mostly."""
    LOST = "lost"
    """An id has no text any more."""
    GAINED_ADDED = "gained-added"
    """An added token that the reference does not have: a fine-tune's."""
    GAINED = "gained"
    """An ordinary piece that the reference does not have."""
    NOT_SPECIAL = "not-special"
    """A special token is no longer one."""
    FLAGS = "flags"
    """An added token is found in text in another way."""
    MERGES = "merges"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """All differences of one kind: their number and the first of them."""

    kind: Kind
    count: int
    at: int
    """Token id, or place of the merge."""
    found: str
    expected: str


def differences(mine: Tokenizer, theirs: Tokenizer) -> list[Difference]:
    """Of two vocabularies; `theirs` is the reference."""
    found = _pieces(mine, theirs)
    found += _flags(mine, theirs)
    merges = _merges(mine, theirs)
    return [*found, *([merges] if merges is not None else [])]


def stored_pieces(tokenizer: Tokenizer) -> list[str | None]:
    """Pieces by id, padding as None."""
    pieces: list[str | None] = list(tokenizer.pieces)
    at = len(pieces) - 1
    while at >= 0 and ((piece := pieces[at]) is None or PADDING.match(piece)):
        pieces[at] = None
        at -= 1
    return pieces[: at + 1]


def _pieces(mine: Tokenizer, theirs: Tokenizer) -> list[Difference]:
    ours, others = stored_pieces(mine), stored_pieces(theirs)
    if ours == others:
        return []
    found: dict[Kind, list[tuple[int, str | None, str | None]]] = {}
    for at, (one, other) in enumerate(zip_longest(ours, others)):
        if one != other:
            found.setdefault(_kind(at, one, other, mine, theirs), []).append((at, one, other))
    return [
        Difference(kind=kind, count=len(rows), at=rows[0][0], found=repr(rows[0][1]), expected=repr(rows[0][2]))
        for kind, rows in found.items()
    ]


def _kind(at: int, one: str | None, other: str | None, mine: Tokenizer, theirs: Tokenizer) -> Kind:
    if other is None or PADDING.match(other):
        return Kind.GAINED_ADDED if at in mine.added_tokens else Kind.GAINED
    if one is None or PADDING.match(one):
        return Kind.LOST
    return Kind.RENAMED if at in mine.added_tokens and at in theirs.added_tokens else Kind.CHANGED


def _flags(mine: Tokenizer, theirs: Tokenizer) -> list[Difference]:
    """Added tokens that both have under one id; a converter to GGUF keeps what is special, and flags some more."""
    lost: list[tuple[int, str, str]] = []
    other: list[tuple[int, str, str]] = []
    is_alike = _form(mine) == _form(theirs)
    is_converted = _form(mine) == "gguf" and _form(theirs) == "json"
    for at, token in theirs.added_tokens.items():
        own = mine.added_tokens.get(at)
        if not 0 <= at < mine.num_ids or mine.pieces[at] != token.content:
            continue
        if token.special and (own is None or not own.special) and (is_alike or is_converted):
            lost.append((at, f"{token.content!r} not special", "special"))
        elif is_alike and _form(mine) == "json" and (own is None or _way(own) != _way(token)):
            shown = "no added token" if own is None else _shown(own)
            other.append((at, f"{token.content!r} {shown}", _shown(token)))
    return [
        Difference(kind=kind, count=len(rows), at=rows[0][0], found=rows[0][1], expected=rows[0][2])
        for kind, rows in ((Kind.NOT_SPECIAL, lost), (Kind.FLAGS, other))
        if rows
    ]


def _form(tokenizer: Tokenizer) -> str:
    return tokenizer.file.rpartition(".")[2]


def _way(token: AddedToken) -> tuple[bool, ...]:
    return (token.special, token.normalized, token.lstrip, token.rstrip, token.single_word)


def _shown(token: AddedToken) -> str:
    names = ("special", "normalized", "lstrip", "rstrip", "single_word")
    return ", ".join(name for name, value in zip(names, _way(token), strict=True) if value) or "without flags"


def _merges(mine: Tokenizer, theirs: Tokenizer) -> Difference | None:
    """Only where both have some: sentencepiece has scores in their place."""
    if not mine.merges.stored or not theirs.merges.stored or mine.merges.digest == theirs.merges.digest:
        return None
    ours, others = mine.merges.pairs, theirs.merges.pairs
    if ours == others:
        return None
    rows = list(_rows(ours, others))
    at, one, other = rows[0]
    return Difference(kind=Kind.MERGES, count=len(rows), at=at, found=str(one), expected=str(other))


def _rows(ours: Sequence[tuple[str, str]], others: Sequence[tuple[str, str]]) -> Iterator[tuple[int, object, object]]:
    for at, (one, other) in enumerate(zip_longest(ours, others)):
        if one != other:
            yield at, one, other

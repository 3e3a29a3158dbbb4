"""Whether two findings speak of the same place, at the finest grain that both of them name.

What is found in a config concerns the whole target, but for claims about single tokens: an end-of-sequence id in
generation_config.json and a spoilt token in tokenizer.json have nothing to do with each other unless the id is that
token's.
"""

from __future__ import annotations

import msgspec

from degarble.finding import Finding, Location

CONFIG_SUFFIXES = (".json", ".yaml", ".toml")
"""A finding in a config file that names no module concerns the whole target."""
CLAIM_SUFFIXES = ("_token", "_token_id")
"""Ends of names in keys that say which token plays a role."""

Key = tuple[str, str]
"""(file, key)."""


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """The places of one (folded) finding, by grain."""

    modules: frozenset[str]
    layers: frozenset[int]
    files: frozenset[str]
    requests: frozenset[str]
    blocks: frozenset[int]
    texts: frozenset[str]
    """Tokens by their text."""
    token_ids: frozenset[int]
    claims: frozenset[Key]
    """Keys that claim a role for a token."""
    keys: frozenset[Key]
    """All other keys."""
    is_text: bool
    """Every place names a token, or a key that claims one."""
    whole: bool
    rank: int
    """0 the whole target, 1 a file, 2 a layer, 3 a module, 4 an element."""

    @property
    def named(self) -> frozenset[str | int]:
        """Requests and blocks: who is concerned in a trace."""
        return self.requests | self.blocks

    @classmethod
    def of(cls, finding: Finding) -> Extent:
        """Collect the places of a finding."""
        places = finding.all_places
        return cls(
            modules=frozenset(name for p in places for name in (p.module, p.tensor) if name),
            layers=frozenset(p.layer for p in places if p.layer is not None),
            files=frozenset(p.file for p in places if p.file),
            requests=frozenset(p.request for p in places if p.request),
            blocks=frozenset(p.block for p in places if p.block is not None),
            texts=frozenset(p.token for p in places if p.token is not None),
            token_ids=frozenset(p.token_id for p in places if p.token_id is not None),
            claims=frozenset(pair for p in places if (pair := _pair(p)) is not None and _claims(p)),
            keys=frozenset(pair for p in places if (pair := _pair(p)) is not None and not _claims(p)),
            is_text=all(_is_text(place) for place in places),
            whole=any(_is_whole(place) for place in places),
            rank=min(_rank(place) for place in places),
        )

    @property
    def roles(self) -> frozenset[str]:
        """What is claimed, whichever file says it."""
        parts = (part for _, key in self.claims for part in key.split("."))
        return frozenset(part.removesuffix("_id") for part in parts if part.endswith(CLAIM_SUFFIXES))


def overlaps(one: Extent, other: Extent) -> bool:
    """Same token or claim, request or block; else module or tensor, layer, file: the first grain both name decides."""
    if is_apart(one, other):
        return False
    if one.whole or other.whole:
        return True
    if one.named and other.named:
        return not one.named.isdisjoint(other.named)
    for grain in ("modules", "layers", "files"):
        mine, theirs = getattr(one, grain), getattr(other, grain)
        if mine and theirs:
            return not mine.isdisjoint(theirs)
    return True


def is_apart(one: Extent, other: Extent) -> bool:
    """Whether both are about tokens and have none in common, or one is about another key beside the other's claims."""
    if one.is_text and other.is_text:
        pairs = ((one.roles, other.roles), (one.texts, other.texts), (one.token_ids, other.token_ids))
        named = [(mine, theirs) for mine, theirs in pairs if mine and theirs]
        return bool(named) and all(mine.isdisjoint(theirs) for mine, theirs in named)
    text, keyed = (one, other) if one.is_text else (other, one)
    if not text.is_text or not text.claims or keyed.texts or keyed.token_ids or not keyed.keys:
        return False
    return not keyed.claims and {file for file, _ in keyed.keys} == {file for file, _ in text.claims} == keyed.files


def _pair(place: Location) -> Key | None:
    return (place.file or "", place.key) if place.key is not None else None


def _claims(place: Location) -> bool:
    return place.key is not None and any(part.endswith(CLAIM_SUFFIXES) for part in place.key.split("."))


def _is_text(place: Location) -> bool:
    """A token of a trace is told by its request and block."""
    if place.module or place.tensor or place.layer is not None or place.request or place.block is not None:
        return False
    return place.token is not None or place.token_id is not None or _claims(place)


def _is_whole(place: Location) -> bool:
    if place.module or place.tensor or place.layer is not None or place.request or place.block is not None:
        return False
    return place.file is None or place.file.endswith(CONFIG_SUFFIXES)


def _rank(place: Location) -> int:
    if place.row is not None or place.element is not None or place.col is not None:
        return 4
    if place.module or place.tensor:
        return 3
    if place.layer is not None:
        return 2
    return 1 if place.file and not _is_whole(place) else 0

"""Families whose cuts are known: what probe texts become before any merge, and as ids (data/tokenizer/probe_cuts.json).

A vocabulary tells its family in two ways. All ordinary pieces, in the order of ids, are the published ones: then the
ids of the probes are known as well. Or only its special tokens are, at their ids: a vocabulary of that family that was
changed. The architecture of the model is no evidence, since distilled models carry another family's tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from degarble.tokenizer.cuts import METASPACE
from degarble.tokenizer.families import identify
from degarble.tokenizer.interface import Tokenizer

DIGEST_BYTES = 16
MAX_SIZE_DIFFERENCE = 0.02
"""Ordinary pieces against the published number: a vocabulary cut down to another size has other habits."""
PADDING = re.compile(r"\[PAD\d+\]\Z")
"""What llama.cpp's converter writes for ids past the vocabulary."""


class PublishedVocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """One vocabulary with its merges."""

    digest: str
    merges: frozenset[str]
    """Digests of the merges as published, one for each spelling."""
    ids: tuple[tuple[int, ...], ...]
    """Of each probe."""


class CutFamily(msgspec.Struct, frozen=True, kw_only=True):
    """Tokenizers that cut alike."""

    name: str
    known_as: frozenset[str]
    """Names in families.toml."""
    size: int
    """Ordinary pieces."""
    gguf_cuts: str | None
    """The cuts that `tokenizer.ggml.pre` has to name; None: GGUF files of this family have no such key."""
    gguf_name: str | None
    """What the converter writes there."""
    needs_ignore_merges: bool
    """Whether some pieces are reached only because whole words are looked up before merging (0.5 % of Llama 3's)."""
    is_from_json: bool
    """Whether the cuts are those of a published tokenizer.json; else they follow from `gguf_name`."""
    cuts: tuple[tuple[str, ...], ...]
    """Of each probe; empty where they are not known."""
    vocabularies: tuple[PublishedVocabulary, ...]

    def is_cut(self, found: Sequence[str], probe: int) -> bool:
        """Whether these are the family's cuts.

        Where a space is U+2581, cuts before one change nothing, as no piece goes across; and whether a text opens with
        one is a setting that published models of one family differ in.
        """
        expected = self.cuts[probe]
        if tuple(found) == expected:
            return True
        if METASPACE not in expected[0] or len(expected) > 1:
            return False
        inner = found[1:]
        return all(cut.startswith(METASPACE) for cut in inner) and "".join(found).removeprefix(METASPACE) == expected[
            0
        ].removeprefix(METASPACE)


class Recognised(msgspec.Struct, frozen=True, kw_only=True):
    """What a vocabulary was recognised as."""

    family: CutFamily
    vocabulary: PublishedVocabulary | None
    """The published one that it is, piece by piece; None: only special tokens say so."""
    is_full_size: bool = True
    """Whether it has as many ordinary pieces as published. One that was cut down or extended keeps the family's name,
    and where it is cut may be changed with it."""

    @property
    def has_json_cuts(self) -> bool:
        """Whether a tokenizer.json of this vocabulary has to cut as the family does."""
        return bool(self.family.cuts) and (self.is_full_size or not self.family.is_from_json)

    def has_merges(self, digest: str) -> bool:
        """Whether pieces and merges are bit for bit published ones, so that nothing about them is left to judge."""
        return self.vocabulary is not None and digest in self.vocabulary.merges


@cache
def probes() -> tuple[str, ...]:
    """Texts that tell the cuts of any two families apart."""
    return tuple(_table()["probes"])


@cache
def cut_families() -> tuple[CutFamily, ...]:
    """Every family there is data for."""
    return tuple(_family(name, entry) for name, entry in _table()["families"].items())


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads((files("degarble.data") / "tokenizer" / "probe_cuts.json").read_text("utf-8"))
    return table


def _family(name: str, entry: Mapping[str, Any]) -> CutFamily:
    return CutFamily(
        name=name,
        known_as=frozenset(entry["known_as"]),
        size=entry["size"],
        gguf_cuts=entry["gguf_cuts"],
        gguf_name=entry["gguf_name"],
        needs_ignore_merges=entry["needs_ignore_merges"],
        is_from_json=entry["is_from_json"],
        cuts=tuple(map(tuple, entry["cuts"])),
        vocabularies=tuple(
            PublishedVocabulary(
                digest=one["digest"], merges=frozenset(one["merges"]), ids=tuple(map(tuple, one["ids"]))
            )
            for one in entry["vocabularies"]
        ),
    )


def ordinary_pieces(tokenizer: Tokenizer) -> list[str]:
    """Pieces in the order of ids, without added tokens and padding."""
    pieces = list(tokenizer.pieces)
    for at in tokenizer.added_tokens:
        if 0 <= at < len(pieces):
            pieces[at] = None
    at = len(pieces) - 1
    while at >= 0 and ((piece := pieces[at]) is None or PADDING.match(piece)):
        pieces[at] = None
        at -= 1
    return list(filter(None, pieces))


def vocabulary_digest(ordinary: Sequence[str]) -> str:
    """Of all ordinary pieces in the order of ids."""
    text = "\0".join(ordinary).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).hexdigest()


def recognise(tokenizer: Tokenizer) -> Recognised | None:
    """The family of a vocabulary; None if it is not known."""
    ordinary = ordinary_pieces(tokenizer)
    digest = vocabulary_digest(ordinary)
    for family in cut_families():
        for vocabulary in family.vocabularies:
            if vocabulary.digest == digest:
                return Recognised(family=family, vocabulary=vocabulary)
    names = {family.name for family in identify(tokenizer.pieces)}
    able = [family for family in cut_families() if names & family.known_as]
    if len(able) != 1 or not names <= able[0].known_as:
        return None
    is_near = abs(len(ordinary) - able[0].size) <= MAX_SIZE_DIFFERENCE * able[0].size
    return Recognised(family=able[0], vocabulary=None, is_full_size=is_near)

"""Ids against the order in which pieces were made: in every published vocabulary the two agree.

A trainer gives ids as it makes pieces, so a later merge makes a higher id; converters that list every pair that makes
a piece sort them by id. Sentencepiece sorts its pieces by score. In 27 published files, after added tokens and runs of
spaces are left out, not one piece is out of order. So a single one that is proves that rows were moved.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from degarble.tokenizer.byte_alphabet import byte_letters
from degarble.tokenizer.decoder_pipeline import BYTE_TOKEN, METASPACE
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.merges import Merges

SPACES = f"{METASPACE} \t\r\n"
"""Pieces of nothing else get their ids by hand in sentencepiece vocabularies, the longest first."""
MAX_SHARE_OF_FALLS = 0.25
"""Bytes in no order at all fall half of the time."""
MIN_RUN = 64
MAX_RUNS = 3
NUM_SAMPLED = 2000
MAX_LENGTH = 200
"""Longer pieces are not asked how they were made."""


class Disorder(msgspec.Struct, frozen=True, kw_only=True):
    """Pieces whose ids are not in the order in which they were made."""

    num_pieces: int
    num_misplaced: int
    """How many have to be taken out until the rest is in order."""
    piece: str
    """The first of them."""
    found: int
    """Its id."""
    after: str
    """The piece made just before it."""
    after_id: int


class MergeGaps(msgspec.Struct, frozen=True, kw_only=True):
    """Where merges and pieces do not fit together."""

    num_merges: int
    unknown: tuple[tuple[int, str], ...]
    """Place of a merge, and the piece that it takes or makes and that nobody has."""
    num_unknown: int
    num_pieces: int
    """Ordinary pieces of more than one character."""
    unmade: tuple[str, ...]
    num_unmade: int
    """Those that no merge makes."""


@dataclass(frozen=True, kw_only=True)
class PieceOrder:
    """A vocabulary with merges, looked at from both sides."""

    tokenizer: Tokenizer
    ordinary: Sequence[str]
    """Pieces by rising id, without added tokens."""

    @cached_property
    def made(self) -> list[str]:
        """Pieces by their first merge."""
        return list(dict.fromkeys(self.tokenizer.merges.products))

    @cached_property
    def is_plain(self) -> bool:
        """Whether ids are bytes in order, then merged pieces in order: most vocabularies, and nothing to look up."""
        start = len(self.ordinary) - len(self.made)
        if self.tokenizer.kind != "byte-level" or start < 0 or self.ordinary[start:] != self.made:
            return False
        letters = self.ordinary[:start]
        return all(len(letter) == 1 for letter in letters) and list(letters) == _letters(letters, self.ordinary)

    def gaps(self, limit: int = 20) -> MergeGaps:
        """Pieces that merges name and the vocabulary lacks, and the reverse."""
        merges = self.tokenizer.merges
        strangers = merges.parts.difference(self.tokenizer.ids_by_piece)
        unmade: list[str] = []
        if not self.is_plain:
            made = frozenset(self.made)
            strangers |= made.difference(self.tokenizer.ids_by_piece)
            unmade = [p for p in self.ordinary if p not in made and len(p) > 1 and not BYTE_TOKEN.match(p)]
        unknown = _naming(merges, strangers) if strangers else []
        return MergeGaps(
            num_merges=len(merges.stored),
            unknown=tuple(unknown[:limit]),
            num_unknown=len(unknown),
            num_pieces=len(self.made) + len(unmade),
            unmade=tuple(unmade[:limit]),
            num_unmade=len(unmade),
        )

    def disorder(self) -> Disorder | None:
        """Pieces in the order in which merges make them; None if their ids rise."""
        if self.is_plain:
            return None
        ids = self.tokenizer.ids_by_piece
        left_out = {token.content for token in self.tokenizer.added_tokens.values()}
        made = [piece for piece in self.made if piece in ids and piece not in left_out]
        if self.tokenizer.kind == "byte-level":
            stored = [letter for letter in byte_letters() if letter in ids and letter not in left_out]
            made = [*_letters(stored, sorted(stored, key=ids.__getitem__)), *made]
        else:
            made = [piece for piece in made if piece.strip(SPACES)]
        return _disorder(made, [ids[piece] for piece in made], may_be_extended=self.tokenizer.kind != "byte-level")


def _letters(letters: Sequence[str], by_id: Sequence[str]) -> list[str]:
    """The bytes in the order that ids follow: of their letters as GPT-2 has it, or of their values; none if neither."""
    places = {letter: at for at, letter in enumerate(by_id[: 2 * len(letters)])}
    known = set(letters)
    orders = [sorted(known), [letter for letter in byte_letters() if letter in known]]
    falls = [sum(places[one] > places[other] for one, other in pairwise(order)) for order in orders]
    best = min(range(len(orders)), key=falls.__getitem__)
    return orders[best] if falls[best] <= MAX_SHARE_OF_FALLS * len(known) else []


def _naming(merges: Merges, strangers: frozenset[str]) -> list[tuple[int, str]]:
    return [
        (at, next(piece for piece in (*pair, product) if piece in strangers))
        for at, (pair, product) in enumerate(zip(merges.pairs, merges.products, strict=True))
        if not strangers.isdisjoint((*pair, product))
    ]


def order_of_scores(pieces: Mapping[int, str], scores: Sequence[float]) -> Disorder | None:
    """Normal pieces by falling score; None if their ids rise, or if there is only one score.

    `pieces` has normal ones only, by rising id. Pieces of one score are taken in the order of ids.
    """
    kept = [at for at, piece in pieces.items() if piece.strip(SPACES)]
    values = np.asarray(scores, np.float64)[kept]
    if not len(values) or not np.isfinite(values).all() or values.min() == values.max():
        return None
    order = np.argsort(-values, kind="stable")
    made = [kept[at] for at in order]
    return _disorder([pieces[at] for at in made], made, may_be_extended=True)


def _disorder(made: Sequence[str], ids: Sequence[int], *, may_be_extended: bool) -> Disorder | None:
    found = np.asarray(ids, np.int64)
    falls = np.flatnonzero(found[1:] < found[:-1]) + 1
    if not len(falls) or (may_be_extended and _is_extended(found, falls)):
        return None
    misplaced = _misplaced(ids)
    first = misplaced[0]
    before = first - 1 if first else 1
    return Disorder(
        num_pieces=len(ids),
        num_misplaced=len(misplaced),
        piece=made[first],
        found=ids[first],
        after=made[before],
        after_id=ids[before],
    )


def _is_extended(ids: NDArray[np.int64], falls: NDArray[np.int64]) -> bool:
    """Whether a few long runs follow each other: pieces appended later, with a score that puts them first."""
    runs = np.split(ids, falls)
    if len(runs) > MAX_RUNS or min(map(len, runs)) < MIN_RUN:
        return False
    ranges = sorted((int(run[0]), int(run[-1])) for run in runs)
    return all(one[1] < other[0] for one, other in pairwise(ranges))


def _misplaced(ids: Sequence[int]) -> list[int]:
    """Places outside a longest rising subsequence."""
    tails: list[int] = []
    places: list[int] = []
    before: list[int] = []
    for at, value in enumerate(ids):
        length = bisect_left(tails, value)
        before.append(places[length - 1] if length else -1)
        tails[length : length + 1] = [value]
        places[length : length + 1] = [at]
    kept: set[int] = set()
    at = places[-1] if places else -1
    while at >= 0:
        kept.add(at)
        at = before[at]
    return [at for at in range(len(ids)) if at not in kept]


def share_not_built(pieces: Mapping[int, str], seed: int = 0) -> tuple[float, list[str]]:
    """Share of a sample of pieces that no two pieces of lower ids make, and some of them.

    Byte-pair training makes a piece of two that it has. This sees tokens that were moved under scores that were not.
    """
    rank = {piece: -1 if len(piece) == 1 else at for at, piece in pieces.items()}
    longer = [piece for piece in pieces.values() if 1 < len(piece) <= MAX_LENGTH]
    sample = longer if len(longer) <= NUM_SAMPLED else random.Random(seed).sample(longer, NUM_SAMPLED)
    missing = [piece for piece in sample if not _is_built(piece, rank)]
    return len(missing) / max(1, len(sample)), missing[:5]


def _is_built(piece: str, rank: Mapping[str, int]) -> bool:
    own = rank[piece]
    return any(rank.get(piece[:cut], own) < own and rank.get(piece[cut:], own) < own for cut in range(1, len(piece)))

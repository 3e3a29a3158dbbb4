"""Byte-pair encoding in the small: one pre-token into ids, with nothing but pieces and merges.

    t o k e n  ->  to k e n  ->  to k en  ->  tok en  ->  token
The pair whose merge comes first in the list is joined first, the leftmost of equals, until no pair is left. Loading a
vocabulary into the library that owns the format takes up to three seconds; a dozen probe texts do not need that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import pairwise

import msgspec

from degarble.tokenizer.merges import Rank

_END = -1


class Bpe(msgspec.Struct, frozen=True, kw_only=True):
    """A vocabulary that encodes pre-tokens, spelled as its pieces are."""

    ids: Mapping[str, int]
    rank: Rank
    ignore_merges: bool = False
    """A pre-token that is a piece is that piece, whether its merges lead there or not."""
    byte_fallback: bool = False
    """A character without a piece becomes its bytes, `<0xE4>`; if one of them is missing, the unknown token."""
    unknown: int | None = None
    """Id of the unknown token; None: such characters are dropped."""
    fuse_unknown: bool = False
    """Unknown characters in a row become one token."""

    def encode(self, text: str) -> list[int]:
        """Ids of one pre-token."""
        if self.ignore_merges and (whole := self.ids.get(text)) is not None:
            return [whole]
        return [at for part in self._parts(text) for at in ([part] if isinstance(part, int) else self._merged(part))]

    def _parts(self, text: str) -> Iterator[list[str] | int]:
        """Runs of symbols that can merge, and unknown tokens between them."""
        run: list[str] = []
        after_unknown = False
        for char in text:
            symbols = self._symbols(char)
            if symbols:
                run += symbols
                after_unknown = False
                continue
            if self.unknown is not None and not (after_unknown and self.fuse_unknown):
                yield run
                yield self.unknown
                run = []
            after_unknown = True
        yield run

    def _symbols(self, char: str) -> list[str]:
        if char in self.ids:
            return [char]
        if self.byte_fallback:
            names = [f"<0x{byte:02X}>" for byte in char.encode("utf-8", "surrogatepass")]
            if all(name in self.ids for name in names):
                return names
        return []

    def _merged(self, symbols: list[str]) -> Iterator[int]:
        """A heap of pairs over a linked list; a pair that has changed since it was noted is passed over."""
        count = len(symbols)
        after = [*range(1, count), _END]
        before = list(range(-1, count - 1))
        queue = [entry for at in range(count - 1) if (entry := self._pair(symbols, at, at + 1)) is not None]
        heapify(queue)
        while queue:
            _, left, right, length = heappop(queue)
            if after[left] != right or len(symbols[left]) + len(symbols[right]) != length:
                continue
            symbols[left] += symbols[right]
            symbols[right] = ""
            after[left], after[right] = after[right], _END
            if after[left] != _END:
                before[after[left]] = left
            for one, other in ((before[left], left), (left, after[left])):
                if one != _END and other != _END and (entry := self._pair(symbols, one, other)) is not None:
                    heappush(queue, entry)
        return (self.ids[symbol] for symbol in symbols if symbol)

    def _pair(self, symbols: list[str], left: int, right: int) -> tuple[int, int, int, int] | None:
        rank = self.rank(symbols[left], symbols[right])
        if rank is None or symbols[left] + symbols[right] not in self.ids:
            return None
        return rank, left, right, len(symbols[left]) + len(symbols[right])


def encode_reference(bpe: Bpe, text: str) -> list[int]:
    """The same by looking at all pairs again after each merge: the oracle in the tests."""
    if bpe.ignore_merges and text in bpe.ids:
        return [bpe.ids[text]]
    ids: list[int] = []
    for part in bpe._parts(text):
        if isinstance(part, int):
            ids.append(part)
            continue
        while True:
            ranked = [
                (rank, at)
                for at, pair in enumerate(pairwise(part))
                if (rank := bpe.rank(*pair)) is not None and "".join(pair) in bpe.ids
            ]
            if not ranked:
                break
            _, at = min(ranked)
            part[at : at + 2] = [part[at] + part[at + 1]]
        ids += [bpe.ids[symbol] for symbol in part]
    return ids

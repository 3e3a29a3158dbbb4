"""The boundary that a first bad position lies on names the fault: block, chunk, window, prefix, rejection, 2^31.

A position lies on one boundary or another by chance, too, so each match carries the share of positions that would match: 1
in 16 for a block of 16. A match is telling where that share, times the number of boundaries tried, is at most 5 %
(Bonferroni); the others are told as what they are. Position 0 is a multiple of everything and says nothing.

Kinds and what breaks there (research KC05, KC09, KC11, KC12, KC17, KC23): the last rows of a block are another kernel's
path; a chunk's begin is where positions and lengths are handed over; a window's edge is where blocks are freed; a rejection is
where rows are rolled back; block ceil(2^31 / stride) is the first whose index passes 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

TELLING = 0.05
INDEX_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundaries:
    """What is known of one sequence and its pool; an empty field is not tried."""

    num_tokens: int | None = None
    """Positions that could have been the first bad one."""
    block_sizes: tuple[int, ...] = ()
    """Of blocks, and of the kernel's blocks where they are others."""
    chunk_size: int | None = None
    """Where chunks are known to be of one size."""
    chunk_edges: tuple[int, ...] = ()
    """Positions that a forward of several tokens began at, or ended before."""
    windows: tuple[int, ...] = ()
    prefix: int | None = None
    """Tokens that came from the prefix cache."""
    rejections: tuple[int, ...] = ()
    """First positions that a rollback dropped."""
    block_strides: tuple[tuple[str, int], ...] = ()
    """Unit and stride of a block, for kernels with 32-bit indices."""
    num_blocks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One boundary that the position lies on."""

    kind: str
    """block | chunk | window | prefix | rejection | 2^31"""
    value: int
    """The size or position of the boundary."""
    says: str
    """As it stands in a sentence: `a multiple of the block size 16`."""
    chance: float
    """Share of positions that lie on such a boundary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """All boundaries tried on one position."""

    position: int
    matches: tuple[Match, ...]
    """The least likely by chance first."""
    tried: tuple[str, ...] = field(default=())

    @property
    def best(self) -> Match | None:
        """The match that is not chance, if one is not."""
        first = self.matches[0] if self.matches else None
        return first if first is not None and first.chance * len(self.tried) <= TELLING else None

    def told(self, what: str = "position") -> str:
        """One sentence; '' if nothing was tried."""
        if not self.tried:
            return ""
        if not self.matches:
            return f"{what} {self.position} lies on no boundary that was tried ({', '.join(self.tried)})"
        found = ", ".join(f"{match.says} (by chance {match.chance:.2g})" for match in self.matches)
        doubt = (
            "" if self.best is not None else f": of {len(self.tried)} boundaries tried, one is met by chance as easily"
        )
        return f"{what} {self.position} is {found}{doubt}"


def fingerprint(position: int, known: Boundaries, block: int | None = None) -> Fingerprint:
    """Try every boundary that is known. `block` is the block that holds the position, for what depends on its id."""
    tried: list[str] = []
    found: list[Match] = []
    if position > 0:
        for name, match in _candidates(position, known, block):
            tried.append(name)
            if match is not None:
                found.append(match)
    found.sort(key=lambda match: match.chance)
    return Fingerprint(position=position, matches=tuple(found), tried=tuple(tried))


def _candidates(position: int, known: Boundaries, block: int | None) -> Iterator[tuple[str, Match | None]]:
    """Each boundary by name, and the match if the position lies on it."""
    for size in dict.fromkeys(known.block_sizes):
        if size > 1:
            yield f"block {size}", _multiple("block", position, size, f"a multiple of the block size {size}")
    if known.chunk_size is not None and known.chunk_size > 1:
        says = f"a multiple of the chunk size {known.chunk_size}"
        yield f"chunk {known.chunk_size}", _multiple("chunk", position, known.chunk_size, says)
    others = max(1, (known.num_tokens or position + 1) - 1)
    edges = {edge for edge in known.chunk_edges if 0 < edge <= others}
    if edges:
        yield f"{len(edges)} chunk edges", _listed("chunk", position, edges, others, "where a chunk begins or ends")
    for window in dict.fromkeys(known.windows):
        if window > 1:
            yield from _window(position, window, known.num_tokens, others)
    if known.prefix:
        yield "prefix", _listed("prefix", position, {known.prefix}, others, "where the cached prefix ends")
    rejections = {edge for edge in known.rejections if 0 < edge <= others}
    if rejections:
        says = "where drafts were rejected"
        yield f"{len(rejections)} rejections", _listed("rejection", position, rejections, others, says)
    yield from _overflow(known, block)


def _multiple(kind: str, position: int, size: int, says: str) -> Match | None:
    return Match(kind=kind, value=size, says=says, chance=1 / size) if position % size == 0 else None


def _listed(kind: str, position: int, edges: set[int], others: int, says: str) -> Match | None:
    return Match(kind=kind, value=position, says=says, chance=len(edges) / others) if position in edges else None


def _window(position: int, window: int, num_tokens: int | None, others: int) -> Iterator[tuple[str, Match | None]]:
    """The ring that a window is kept in begins anew at its multiples; the last query's window begins at one position."""
    yield f"window {window}", _multiple("window", position, window, f"a multiple of the window {window}")
    if num_tokens is not None and num_tokens > window:
        edge = num_tokens - window
        says = f"where the window {window} of token {num_tokens - 1} begins"
        yield f"edge of window {window}", _listed("window", position, {edge}, others, says)


def _overflow(known: Boundaries, block: int | None) -> Iterator[tuple[str, Match | None]]:
    for unit, stride in known.block_strides:
        if stride < 1 or block is None or known.num_blocks is None:
            continue
        first = -(-INDEX_LIMIT // stride)
        if first >= known.num_blocks:
            continue
        says = f"in block {first}, the first whose index passes 2^31 {unit}"
        match = Match(kind="2^31", value=first, says=says, chance=1 / known.num_blocks)
        yield f"2^31 {unit}", match if block == first else None

"""A page-aligned allocator of bytes that knows what was asked for, not only what it gave (KVC609).

A request for 3072 bytes gets 4096, one for 6144 gets 8192. Whoever takes the rounded size for the size writes 1024 or
2048 bytes past the end. In a plain allocator nobody notices until something else lives there. Here

    [ requested bytes | canary up to the page's end ][ red zone ][ next allocation …

the rest of the last page and a zone after it hold a pattern that depends on the place, and `check` says which byte of
which allocation was overwritten. `is_tail_reused` plants the fault: small requests are put into the unused ends of
others, as an allocator does that thinks in requested sizes while its callers think in rounded ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from degarble.errors import BoundCrossed, OutOfBlocks
from degarble.kvcache.graph_guard import GraphGuard

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Bytes [offset, offset + requested) belong to the caller; up to `reserved` they are set aside."""

    name: str
    offset: int
    requested: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """An allocation that was written past what was requested."""

    allocation: Allocation
    first_byte: int
    """Relative to the allocation, so at least `requested`."""
    last_byte: int
    is_red_zone_hit: bool
    """Whether even the rounded size was passed."""


class ByteAllocator:
    """First fit over one buffer. Guard: memory that a captured graph leases is not freed."""

    def __init__(
        self,
        size: int,
        *,
        page_bytes: int = 4096,
        red_zone_bytes: int = 64,
        is_tail_reused: bool = False,
        guard: GraphGuard | None = None,
    ) -> None:
        self.memory: Bytes = np.zeros(size, np.uint8)
        self.page_bytes = page_bytes
        self.red_zone_bytes = red_zone_bytes
        self.is_tail_reused = is_tail_reused
        self.guard = guard
        self.live: dict[str, Allocation] = {}
        place = np.arange(size, dtype=np.uint32)
        self._pattern: Bytes = ((place * 2654435761) >> np.uint32(24)).astype(np.uint8) ^ np.uint8(0xA5)
        self.memory[:] = self._pattern

    def rounded(self, nbytes: int) -> int:
        """The size that is set aside: 3072 -> 4096, 6144 -> 8192 with pages of 4096."""
        return -(-nbytes // self.page_bytes) * self.page_bytes

    def allocate(self, name: str, nbytes: int) -> Allocation:
        """Set bytes aside. Raises OutOfBlocks where nothing fits, BoundCrossed for a name or size that cannot be."""
        if name in self.live or nbytes < 1:
            raise BoundCrossed(f"{name!r} is allocated already, or {nbytes} bytes are no size")
        offset = self._tail(nbytes) if self.is_tail_reused else None
        reserved = self.rounded(nbytes)
        if offset is not None:
            reserved = nbytes
        else:
            offset = self._gap(reserved + self.red_zone_bytes)
        if self.guard is not None:
            self.guard.check_reuse(offset, reserved)
        made = Allocation(name=name, offset=offset, requested=nbytes, reserved=reserved)
        self.live[name] = made
        self.memory[offset : offset + nbytes] = 0
        return made

    def _gap(self, nbytes: int) -> int:
        """The first page boundary with so much room after it."""
        at = 0
        for one in sorted(self.live.values(), key=lambda one: one.offset):
            if one.offset - at >= nbytes:
                break
            at = max(at, self.rounded(one.offset + one.reserved + self.red_zone_bytes))
        if at + nbytes > self.memory.size:
            raise OutOfBlocks(f"{nbytes} bytes wanted, none are free after {at} of {self.memory.size}")
        return at

    def _tail(self, nbytes: int) -> int | None:
        """The unused end of an allocation, if it is large enough and empty: the fault."""
        taken = {one.offset for one in self.live.values()}
        for one in self.live.values():
            start = one.offset + one.requested
            if one.reserved - one.requested >= nbytes and start not in taken:
                return start
        return None

    def view(self, name: str) -> Bytes:
        """The requested bytes, and no more."""
        one = self.live[name]
        return self.memory[one.offset : one.offset + one.requested]

    def free(self, name: str) -> None:
        """Give back. Raises BoundCrossed if it was written past its end, GraphHoldsMemory if a graph leases it."""
        if name not in self.live:
            raise BoundCrossed(f"{name!r} is freed, and not allocated")
        one = self.live[name]
        if self.guard is not None:
            self.guard.check_reuse(one.offset, one.reserved)
        self.check(name)
        del self.live[name]
        self.memory[one.offset : one.offset + one.reserved] = self._pattern[one.offset : one.offset + one.reserved]

    def crossings(self) -> list[Crossing]:
        """Every allocation whose canary or red zone was written to. With reused tails there are no canaries there."""
        found: list[Crossing] = []
        starts = sorted(one.offset for one in self.live.values())
        for one in self.live.values():
            start, page_end = one.offset + one.requested, one.offset + one.reserved
            following = next((at for at in starts if at >= start), self.memory.size)
            end = min(page_end + self.red_zone_bytes, following)
            wrong = np.flatnonzero(self.memory[start:end] != self._pattern[start:end])
            if wrong.size:
                first, last = one.requested + int(wrong[0]), one.requested + int(wrong[-1])
                found.append(
                    Crossing(allocation=one, first_byte=first, last_byte=last, is_red_zone_hit=last >= one.reserved)
                )
        return found

    def check(self, name: str | None = None) -> None:
        """Raises BoundCrossed for the first allocation (or the named one) that was written past its end."""
        for found in self.crossings():
            one = found.allocation
            if name in (None, one.name):
                raise BoundCrossed(
                    f"KVC609: {one.name}: {one.requested} bytes requested, {one.reserved} set aside; bytes "
                    f"{found.first_byte} to {found.last_byte} were written, {found.last_byte + 1 - one.requested} past the end"
                )

    def check_integrity(self) -> None:
        """No two allocations overlap, and nobody wrote past an end."""
        order = sorted(self.live.values(), key=lambda one: one.offset)
        for one, other in pairwise(order):
            if one.offset + one.requested > other.offset:
                raise BoundCrossed(f"{one.name} and {other.name} overlap at byte {other.offset}")
        self.check()

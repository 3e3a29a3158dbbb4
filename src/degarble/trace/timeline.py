"""What a picture of a trace shows: positions and cache slots of each request over time, and who holds which block.

Bounded: of a long trace only the events around the first violation are drawn.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from degarble.trace.event import Alloc, Free, Fwd, Meta, Ref
from degarble.trace.reader import read_items
from degarble.trace.replay import Verdict, replay_items

MAX_SPANS = 4000
"""Forwards and holdings that are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """One forward of one request."""

    n: int
    request: str
    low: int
    high: int
    slots: tuple[int, int]
    """First and last slot."""
    rope: tuple[int, int]
    """First and last position id."""


@dataclass(slots=True, kw_only=True)
class Holding:
    """One table entry from its alloc or ref to its free."""

    block: int
    request: str
    begin: int
    end: int | None = None


@dataclass(slots=True, kw_only=True)
class Timeline:
    """All that is drawn."""

    path: str
    verdict: Verdict
    block_size: int
    forwards: deque[Forward] = field(default_factory=lambda: deque(maxlen=MAX_SPANS))
    holdings: deque[Holding] = field(default_factory=lambda: deque(maxlen=MAX_SPANS))
    first_n: int = 0
    last_n: int = 0


def read_timeline(path: str, verdict: Verdict | None = None) -> Timeline:
    """Collect what is drawn, up to some events after the first violation; replay first if nobody has."""
    verdict = verdict or replay_items(read_items(path))
    first = verdict.first
    stop = None if first is None else first.line + 50
    timeline = Timeline(path=path, verdict=verdict, block_size=0)
    held: dict[tuple[str, int], list[Holding]] = {}
    for batch in read_items(path):
        for item in batch:
            if stop is not None and item.n > stop:
                break
            timeline.last_n = max(timeline.last_n, item.n)
            if isinstance(item, Meta):
                sizes = [group.block_size for group in item.groups or () if group.block_size]
                timeline.block_size = item.block_size or (sizes[0] if sizes else 0)
            elif isinstance(item, Fwd) and item.slots:
                low, high = item.pos
                rope = (item.rope[0], item.rope[-1]) if item.rope else (low, high - 1)
                slots = (item.slots[0], item.slots[-1])
                timeline.forwards.append(
                    Forward(n=item.n, request=str(item.req), low=low, high=high, slots=slots, rope=rope)
                )
            elif isinstance(item, Alloc | Ref):
                for block in item.b:
                    holding = Holding(block=block, request=str(item.req), begin=item.n)
                    timeline.holdings.append(holding)
                    held.setdefault((str(item.req), block), []).append(holding)
            elif isinstance(item, Free):
                for block in item.b:
                    waiting = held.get((str(item.req), block))
                    if waiting:
                        waiting.pop().end = item.n
                        if not waiting:
                            del held[str(item.req), block]
    drawn = [forward.n for forward in timeline.forwards] + [h.end or h.begin for h in timeline.holdings]
    timeline.first_n = min(drawn, default=0)
    return timeline

"""Blocks and block tables as the trace moves them: who holds a block, what its rows hold, and its life line."""

from __future__ import annotations

from collections import deque
from typing import Any

from degarble.trace.event import Copy, Event, Name
from degarble.trace.geometry import GroupGeometry

LIFE_EVENTS = 8
"""Events of a block that are remembered for its life line."""
MAX_GAP_ROWS = 4096
HUGE = 1 << 62
"""A position that no forward reaches."""


class Wild:
    """Content of a row that came from outside the trace (a load of an unknown key) and is taken on trust."""

    def __repr__(self) -> str:
        return "wild"


WILD = Wild()
UNSETTLED = Wild()
"""Content of a row that was computed for a draft, or before its token was told."""
Value = Any
"""A row's content: token id + namespace base (an int), None for never written, WILD, or an Unsampled."""


class OpenStep:
    """One engine step between its B and its E."""

    __slots__ = ("_blocks", "_told", "is_open", "n", "name")

    def __init__(self, name: Name | None, n: int, blocks: list[int] | None) -> None:
        self.name = name
        self.n = n
        self.is_open = True
        self._told = blocks
        self._blocks: frozenset[int] | None = None

    @property
    def blocks(self) -> frozenset[int]:
        """Blocks that it reads and writes. Steps list hundreds of them and few are ever asked, so the set is made late."""
        if self._blocks is None:
            self._blocks = frozenset(self._told or ())
            self._told = None
        return self._blocks

    def close(self) -> None:
        """It uses nothing any more; blocks that it wrote may still name it."""
        self.is_open = False
        self._told = self._blocks = None


class Block:
    """One physical block."""

    __slots__ = ("entry", "holders", "id", "life", "reader", "rows", "sole", "step", "transfers", "write")

    def __init__(self, block_id: int) -> None:
        self.id = block_id
        self.holders: list[Table] = []
        """One entry per table entry that holds the block: its length is the reference count."""
        self.rows: list[Value] = []
        self.entry: Any = None
        """Its entry of the prefix map, if it is published."""
        self.write: Event | None = None
        """The forward, copy or transfer that wrote it last."""
        self.step: OpenStep | None = None
        """The step of the last write."""
        self.reader: OpenStep | None = None
        """A step that was open, and used the block, when it was freed."""
        self.transfers: list[Any] = []
        """Open transfers that read or write it."""
        self.sole: Table | None = None
        """Its only holder while no transfer is open on it: the one that may write without a further look."""
        self.life: deque[tuple[int, str]] = deque(maxlen=LIFE_EVENTS)

    def hold(self, table: Table) -> None:
        """One more table entry."""
        self.holders.append(table)
        self._set_sole()

    def release(self, table: Table) -> None:
        """One table entry less."""
        self.holders.remove(table)
        self._set_sole()

    def join(self, transfer: Any) -> None:
        """A transfer begins to read or write it."""
        self.transfers.append(transfer)
        self._set_sole()

    def part(self, transfer: Any) -> None:
        """A transfer has ended."""
        self.transfers.remove(transfer)
        self._set_sole()

    def _set_sole(self) -> None:
        self.sole = self.holders[0] if len(self.holders) == 1 and not self.transfers else None

    def life_line(self) -> tuple[str, ...]:
        """The last events of the block, oldest first."""
        events = list(self.life)
        if self.write is not None:
            events.append((self.write.n, f"written by {_writer(self.write)}"))
        return tuple(f"{n}: {what}" for n, what in sorted(events, key=lambda item: item[0]))

    def put(self, row: int, value: Value) -> None:
        """Write one row. A gap longer than any block is not kept: its rows read as never written."""
        rows = self.rows
        if row < len(rows):
            rows[row] = value
        elif row - len(rows) <= MAX_GAP_ROWS:
            rows.extend([None] * (row - len(rows)))
            rows.append(value)


def _writer(event: Event) -> str:
    """Who wrote: a request, a copy of a block, a transfer."""
    if isinstance(event, Copy):
        return f"a copy of block {event.src}"
    return str(getattr(event, "req", None) or f"transfer {getattr(event, 'id', '')}")


class Table:
    """The block table of one request in one cache group, and how much of it is valid."""

    __slots__ = (
        "block_size",
        "blocks",
        "cut_at",
        "dirty",
        "drafted",
        "geometry",
        "is_rolled_back",
        "lo",
        "null_end",
        "owner",
        "plain_from",
        "state",
        "step",
        "valid",
    )

    def __init__(self, owner: Sequence, geometry: GroupGeometry) -> None:
        self.owner = owner
        self.geometry = geometry
        self.block_size = geometry.block_size
        self.blocks: list[Block | None] = []
        self.dirty: set[int] = set()
        """Columns whose block changed its owner or content since the last read: all that a read must look at."""
        self.cut_at: int | None = None
        """Counter of a free that took the end of the row off below its valid length."""
        self.valid = 0
        """Tokens whose rows are in the cache, those of the running step included."""
        self.lo = 0
        """First position of the last forward: what is settled while its step is open."""
        self.step: OpenStep | None = None
        self.drafted = False
        """Whether the last forward had drafts whose fate is not told yet."""
        self.is_rolled_back = False
        self.null_end = 0
        """First position after the freed window columns."""
        self.plain_from = 0
        """From this position on a decode forward has nothing special to look at; see Replay.on_fwd."""
        self.state: tuple[int, int] | None = None

    @property
    def settled(self) -> int:
        """Tokens that finished steps computed."""
        return self.lo if self.step is not None and self.step.is_open else self.valid

    def clear(self) -> None:
        """As after a preemption."""
        self.blocks = []
        self.dirty.clear()
        self.valid = self.lo = self.null_end = 0
        self.step = None
        self.cut_at = None
        self.drafted = self.is_rolled_back = False
        self.state = None
        self.set_plain()

    def set_drafted(self, drafted: bool, is_rolled_back: bool) -> None:
        """Whether drafts wait for their fate, and whether the last ones were cut."""
        self.drafted = drafted
        self.is_rolled_back = is_rolled_back
        self.set_plain()

    def set_plain(self) -> None:
        """Recompute where the short way of a decode forward is allowed."""
        geometry = self.geometry
        is_special = self.owner.is_special or self.owner.rope_offset != 0 or self.drafted or self.is_rolled_back
        if is_special or geometry.block_size == 0 or geometry.cp > 1 or geometry.kind in ("recurrent", "cross"):
            self.plain_from = HUGE
        elif self.null_end:
            self.plain_from = HUGE if geometry.window is None else self.null_end + geometry.window - 1
        else:
            self.plain_from = 0


class Sequence:
    """One live request."""

    __slots__ = (
        "base",
        "is_blind",
        "is_ended",
        "is_running",
        "is_special",
        "moved",
        "name",
        "pending_shift",
        "rope_offset",
        "table",
        "tables",
        "values",
    )

    def __init__(self, name: Name, values: list[Value], base: int, rope_offset: int, is_blind: bool) -> None:
        self.name = str(name)
        self.values = values
        """Token id + base of every token known so far."""
        self.base = base
        self.rope_offset = rope_offset
        self.is_blind = is_blind
        """The trace does not tell its token ids."""
        self.is_special = is_blind
        self.is_running = True
        self.is_ended = False
        self.moved = 0
        """Sum of its context shifts."""
        self.pending_shift = 0
        self.table: Table | None = None
        """That of group 0, which most traces have alone."""
        self.tables: dict[int, Table] = {}

    def mark_special(self) -> None:
        """Let every forward take the long way from now on."""
        self.is_special = True
        for table in self.tables.values():
            table.set_plain()


class Pool:
    """The blocks of one id space."""

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}

    def block(self, block_id: int) -> Block:
        """A block by id, made when first named; callers check the range."""
        block = self.blocks.get(block_id)
        if block is None:
            block = self.blocks[block_id] = Block(block_id)
        return block

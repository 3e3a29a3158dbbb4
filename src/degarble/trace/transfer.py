"""Transfers (offload, restore, prefill to decode, swap) and digests of slots. Judges KVC617 and KVC618.

A transfer reads or writes its blocks from its B to its E. What a store wrote under a key is what a load of that key must
bring back, in digest and in content; a key the trace never stored is taken on trust.
"""

from __future__ import annotations

from collections import OrderedDict

from degarble.trace.event import Crc, Event, Name, Xfer
from degarble.trace.pool import WILD, Block, Value
from degarble.trace.state import State

MAX_KEYS = 65_536
"""Keys of the outer tier that are remembered; older ones are taken on trust again."""
MAX_DIGESTS = 1 << 20
WRITERS = ("load", "recv")
READERS = ("store", "send")


class Transfer:
    """One transfer between its B and its E."""

    __slots__ = ("blocks", "dir", "id", "is_writing", "key", "layers", "n", "parts", "saved")

    def __init__(self, event: Xfer, blocks: list[Block], is_writing: bool) -> None:
        self.id = event.id
        self.n = event.n
        self.dir = event.dir
        self.key = event.key
        self.parts = event.parts
        self.layers = event.layers
        self.blocks = blocks
        self.is_writing = is_writing
        self.saved = [list(block.rows) for block in blocks]
        """Content at the beginning: what a store takes."""


class Kept:
    """What the outer tier holds under a key."""

    __slots__ = ("crc", "rows")

    def __init__(self, rows: list[list[Value]], crc: Name | None) -> None:
        self.rows = rows
        self.crc = crc


class TransferJudge:
    """Follows transfers and digests."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.open: dict[Name, Transfer] = {}
        self.kept: OrderedDict[Name, Kept] = OrderedDict()
        self.digests: dict[tuple[int, int, int | None, str | None], tuple[Name, Event | None]] = {}

    def on_xfer(self, event: Xfer) -> None:
        """A transfer begins or ends."""
        if event.ph == "B":
            self._begin(event)
        elif event.ph == "E":
            self._end(event)
        else:
            self.state.fail("KVC623", event, f"xfer {event.id!r} has the phase {event.ph[:20]!r}, not B or E")

    def _begin(self, event: Xfer) -> None:
        if event.id in self.open:
            self.state.fail("KVC623", event, f"transfer {event.id} begins while it is open")
            self._close(self.open.pop(event.id))
        blocks = [block for b in event.b if (block := self.state.checked_block(event, b, None)) is not None]
        is_writing = event.dir in WRITERS or (event.dir == "swap" and all(not block.rows for block in blocks))
        transfer = Transfer(event, blocks, is_writing)
        self.open[event.id] = transfer
        self._whole(event)
        for block in blocks:
            if is_writing:
                self._may_overwrite(event, block)
                for table in block.holders:
                    table.dirty.update(c for c, held in enumerate(table.blocks) if held is block)
            else:
                self._is_computed(event, block)
            block.join(transfer)
            block.life.append((event.n, f"{event.dir} {event.id} began"))

    def _whole(self, event: Xfer) -> None:
        """Every layer and part of the group travels."""
        geometry = self.state.geometry(event.g)
        for what, sent, needed in (
            ("layers", event.layers, geometry.layers),
            ("parts", event.parts, geometry.parts),
        ):
            if sent is None or needed is None or set(sent) == needed:  # type: ignore[comparison-overlap]
                continue
            missing = sorted(set(needed) - set(sent), key=str)
            message = f"leaves out {what} {missing[:8]}" if missing else f"names {what} that the group has not"
            self.state.fail(
                "KVC618",
                event,
                f"transfer {event.id} ({event.dir}) {message}",
                block=event.b[0] if event.b else None,
                measured={what: len(set(sent))},
                bound={what: len(needed)},
            )

    def _may_overwrite(self, event: Xfer, block: Block) -> None:
        """A load begins after the last reader of its block has ended."""
        users = [step for step in self.state.steps.values() if block.id in step.blocks]
        user = users[0] if users else block.reader
        if user is not None and user.is_open:
            what = f"step {user.name}, which began at {user.n}, uses it"
        elif block.transfers:
            what = f"transfer {block.transfers[0].id} is open on it"
        elif block.entry is not None:
            self.state.fail(
                "KVC627",
                event,
                f"{event.dir} {event.id} overwrites block {block.id}, to which the prefix map still leads",
                block=block,
            )
            return
        else:
            return
        self.state.fail(
            "KVC617",
            event,
            f"{event.dir} {event.id} overwrites block {block.id} while {what}",
            block=block,
            request=block.holders[0].owner.name if block.holders else None,
        )

    def _is_computed(self, event: Xfer, block: Block) -> None:
        """A store or send takes what finished steps computed."""
        named = self.state.steps.get(event.after_step) if event.after_step is not None else None
        if block.step is not None and block.step.is_open:
            what = f"step {block.step.name}, which writes it, is open"
        elif named is not None and named.is_open:
            what = f"step {named.name}, which it is to follow, is open"
        elif self.state.geometry(event.g).block_size and not block.rows:
            what = "nobody has written it since it was allocated"
        else:
            return
        self.state.fail(
            "KVC618",
            event,
            f"{event.dir} {event.id} begins to send block {block.id} while {what}",
            block=block,
            request=block.holders[0].owner.name if block.holders else None,
        )

    def _end(self, event: Xfer) -> None:
        transfer = self.open.pop(event.id, None)
        if transfer is None:
            self.state.fail("KVC623", event, f"transfer {event.id} ends and was not open")
            return
        self._close(transfer)
        first = event.b[0] if event.b else None
        if [block.id for block in transfer.blocks] != event.b or (event.key is not None and event.key != transfer.key):
            self.state.fail("KVC618", event, f"transfer {event.id} ends with other blocks or another key", block=first)
        key = event.key if event.key is not None else transfer.key
        kept = self.kept.get(key) if key is not None else None
        sent, received = event.crc_src, event.crc_dst
        if sent is not None and received is not None and sent != received:
            self._differ(event, first, f"digest {sent} at the source, {received} at the destination")
        elif transfer.is_writing and kept is not None and kept.crc is not None and received not in (None, kept.crc):
            self._differ(event, first, f"key {str(key)[:24]} was stored with digest {kept.crc}, {received} came back")
        if transfer.is_writing:
            self._fill(event, transfer, kept)
        elif key is not None:
            self.kept[key] = Kept(transfer.saved, sent if sent is not None else received)
            if len(self.kept) > MAX_KEYS:
                self.kept.popitem(last=False)

    def _differ(self, event: Xfer, block: int | None, what: str) -> None:
        held = None if block is None else self.state.pool(event.g).block(block)
        self.state.fail(
            "KVC618",
            event,
            f"transfer {event.id} ({event.dir}) changed the bytes of block {block}: {what}",
            block=held,
            measured={"crc_dst": event.crc_dst},
            bound={"crc_dst": event.crc_src},
        )

    @staticmethod
    def _close(transfer: Transfer) -> None:
        for block in transfer.blocks:
            block.part(transfer)

    def _fill(self, event: Xfer, transfer: Transfer, kept: Kept | None) -> None:
        size = self.state.geometry(event.g).block_size
        for index, block in enumerate(transfer.blocks):
            if kept is not None and index < len(kept.rows):
                block.rows = list(kept.rows[index])
            else:
                block.rows = [WILD] * size
            block.write = event
            block.step = None
            for table in block.holders:
                table.dirty.update(c for c, held in enumerate(table.blocks) if held is block)

    def on_crc(self, event: Crc) -> None:
        """A read finds the digest that the last write of its slot left."""
        size = self.state.geometry(event.g).block_size
        block = self.state.checked_block(event, event.slot // size, None) if size else None
        if size and block is None:
            return
        key = (event.g, event.slot, event.layer, event.part)
        written = None if block is None else block.write
        known = self.digests.get(key)
        if event.at == "read" and known is not None and known[1] is written and known[0] != event.crc:
            self.state.fail(
                "KVC618",
                event,
                f"slot {event.slot} was written with digest {known[0]} and is read with {event.crc}",
                block=block,
                slot=event.slot,
                layer=event.layer,
                measured={"crc": event.crc},
                bound={"crc": known[0]},
            )
        if len(self.digests) < MAX_DIGESTS or key in self.digests:
            self.digests[key] = (event.crc, written)

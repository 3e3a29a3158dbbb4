"""Captured graphs: a replay uses the addresses and constants of its capture, and its padding writes nowhere else.

Judges KVC610, and KVC603 for padding rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from degarble.trace.event import Graph, Name
from degarble.trace.state import State


class GraphJudge:
    """Follows captures and judges replays."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.captured: dict[Name, Graph] = {}
        self.dropped: dict[Name, int] = {}

    def on_graph(self, event: Graph) -> None:
        """A graph is captured, replayed or dropped."""
        if event.op == "capture":
            self.captured[event.id] = event
            self.dropped.pop(event.id, None)
        elif event.op == "drop":
            if self.captured.pop(event.id, None) is None:
                self.state.fail("KVC623", event, f"graph {event.id} is dropped and was not captured", key=str(event.id))
            self.dropped[event.id] = event.n
        elif event.op == "replay":
            self._replay(event)
        else:
            self.state.fail("KVC623", event, f"graph {event.id} has the unknown op {event.op[:40]!r}")
        self._padding(event)

    def _replay(self, event: Graph) -> None:
        capture = self.captured.get(event.id)
        if capture is None:
            at = self.dropped.get(event.id)
            why = "was never captured" if at is None else f"was dropped at {at}"
            self._fail(event, f"graph {event.id} is replayed and {why}", event.id)
            return
        for what, baked, given in (("pointer", capture.ptr, event.ptr), ("constant", capture.const, event.const)):
            difference = _difference(baked, given)
            if difference is None:
                continue
            name, old, new = difference
            self._fail(
                event,
                f"graph {event.id} was captured at {capture.n} with {what} {name} = {old} and is replayed while it is "
                f"{new}: the replay still uses the old one",
                f"{event.id}.{name}",
                {"now": _shown(new)},
                {"captured": _shown(old)},
            )
            return
        if capture.padded is not None and event.padded is not None and capture.padded != event.padded:
            self._fail(
                event,
                f"graph {event.id} was captured for {capture.padded} rows and is replayed for {event.padded}",
                f"{event.id}.padded",
                {"rows": event.padded},
                {"rows": capture.padded},
            )
        elif event.real is not None and event.padded is not None and event.real > event.padded:
            self._fail(
                event,
                f"graph {event.id} has {event.padded} rows and is replayed with {event.real} real ones",
                f"{event.id}.real",
                {"rows": event.real},
                {"rows": event.padded},
            )

    def _fail(
        self,
        event: Graph,
        message: str,
        key: Name,
        measured: Mapping[str, str | int] | None = None,
        bound: Mapping[str, str | int] | None = None,
    ) -> None:
        self.state.fail("KVC610", event, message, key=str(key), measured=measured, bound=bound)

    def _padding(self, event: Graph) -> None:
        """Padding rows write the pad slot and nothing else."""
        if not event.pad_slots or self.state.meta is None:
            return
        pad = self.state.meta.pad_slot
        wrong = next((slot for slot in event.pad_slots if slot != pad), None)
        if wrong is None:
            return
        geometry = self.state.geometry(event.g)
        block_id = wrong // geometry.block_size if geometry.block_size and wrong >= 0 else None
        block = None
        if block_id is not None and geometry.is_block(block_id):
            block = self.state.pool(event.g).block(block_id)
        holders = sorted({table.owner.name for table in block.holders}) if block is not None else []
        self.state.fail(
            "KVC603",
            event,
            f"a padding row of graph {event.id} writes slot {wrong}, the pad slot is {pad}"
            + (f": it belongs to {', '.join(holders[:4])}" if holders else ""),
            block=block if block is not None else block_id,
            slot=wrong,
            measured={"slot": wrong},
            bound={"slot": pad},
        )


def _difference(
    baked: Mapping[str, object] | None, given: Mapping[str, object] | None
) -> tuple[str, object, object] | None:
    """The first name whose value is another one than at capture; names only one side tells are not compared."""
    if baked is None or given is None:
        return None
    return next(((name, old, given[name]) for name, old in baked.items() if name in given and given[name] != old), None)


def _shown(value: object) -> str | int:
    return value if isinstance(value, int) and abs(value) < 1 << 53 else str(value)[:80]

"""Memory that a captured graph can touch is leased to it, until the graph is dropped (KVC610).

A CUDA graph replays addresses and launch arguments as they were at capture. Memory that was freed, reused or moved
since is read and written all the same; so is a length that was passed as a number (kekzl/imp#986: perplexity 8.30 became
15.35). The guard keeps what was captured and refuses (a) to free or reuse a leased range, (b) a replay whose buffers
have moved or whose constants have changed, (c) padded rows that write anywhere but to the trash slot. It knows numbers
only, no device: the tests drive it with `graph_stand_in.py`, an engine with real addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from degarble.errors import GraphHoldsMemory

Constant = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Buffer:
    """A range of addresses."""

    address: int
    nbytes: int

    def overlaps(self, address: int, nbytes: int) -> bool:
        """Whether they share a byte."""
        return address < self.address + self.nbytes and self.address < address + nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What a graph has in it."""

    buffers: Mapping[str, Buffer]
    constants: Mapping[str, Constant]
    num_rows: int


class GraphGuard:
    """All graphs that can still be replayed."""

    def __init__(self, trash_slots: Sequence[int] = ()) -> None:
        self.trash_slots = frozenset(trash_slots)
        if any(slot < 0 for slot in self.trash_slots):
            raise GraphHoldsMemory(f"trash slots {sorted(self.trash_slots)}: a negative slot indexes from the end")
        self.graphs: dict[str, Captured] = {}

    def capture(
        self,
        graph: str,
        buffers: Mapping[str, Buffer],
        constants: Mapping[str, Constant] | None = None,
        num_rows: int = 0,
    ) -> None:
        """Lease every buffer to a graph. Raises GraphHoldsMemory if it exists already."""
        if graph in self.graphs:
            raise GraphHoldsMemory(f"graph {graph!r} was captured already; drop it first")
        self.graphs[graph] = Captured(buffers=dict(buffers), constants=dict(constants or {}), num_rows=num_rows)

    def drop(self, graph: str) -> None:
        """The graph can no longer be replayed: its leases end."""
        if self.graphs.pop(graph, None) is None:
            raise GraphHoldsMemory(f"graph {graph!r} is dropped, and was never captured")

    def leases(self, address: int, nbytes: int) -> list[tuple[str, str]]:
        """Graphs and names of their buffers that a range would touch."""
        return [
            (graph, name)
            for graph, captured in self.graphs.items()
            for name, buffer in captured.buffers.items()
            if buffer.overlaps(address, nbytes)
        ]

    def check_reuse(self, address: int, nbytes: int) -> None:
        """Ask before freeing a range, or giving it to something else."""
        held = self.leases(address, nbytes)
        if held:
            graph, name = held[0]
            raise GraphHoldsMemory(
                f"KVC610: [{address:#x}, {address + nbytes:#x}) is {name!r} of graph {graph!r}, which can still be replayed"
            )

    def check_replay(
        self,
        graph: str,
        buffers: Mapping[str, Buffer],
        constants: Mapping[str, Constant] | None = None,
        *,
        num_real: int = 0,
        slots: Sequence[int] = (),
    ) -> None:
        """Ask before a replay: same addresses, same constants, `slots` of padded rows are trash slots."""
        captured = self.graphs.get(graph)
        if captured is None:
            raise GraphHoldsMemory(f"graph {graph!r} is replayed, and was dropped or never captured")
        for name, buffer in captured.buffers.items():
            if buffers.get(name) != buffer:
                raise GraphHoldsMemory(
                    f"KVC610: {name!r} of graph {graph!r} was captured as {buffer}, now {buffers.get(name)}"
                )
        for name, value in captured.constants.items():
            if (constants or {}).get(name) != value:
                found = (constants or {}).get(name)
                raise GraphHoldsMemory(
                    f"KVC610: {name!r} was captured as {value} in graph {graph!r}, now it is {found}"
                )
        if slots and len(slots) != captured.num_rows:
            raise GraphHoldsMemory(
                f"KVC610: graph {graph!r} has {captured.num_rows} rows, {len(slots)} slots were given"
            )
        for row, slot in enumerate(slots):
            if (row >= num_real) != (slot in self.trash_slots):
                kind = "padded" if row >= num_real else "real"
                raise GraphHoldsMemory(f"KVC610: {kind} row {row} of graph {graph!r} writes slot {slot}")

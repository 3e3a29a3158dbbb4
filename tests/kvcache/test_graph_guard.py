"""The guard against a stand-in that replays what it recorded, on memory that has been given to somebody else."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.errors import GraphHoldsMemory
from degarble.kvcache.byte_allocator import ByteAllocator
from degarble.kvcache.graph_guard import Buffer, GraphGuard
from degarble.kvcache.graph_stand_in import GraphStandIn

ROW = 8
ROWS = 4
SLOTS = 16


class World:
    """Rows, slots and a cache in one memory, and a graph captured over them."""

    def __init__(self, guard: GraphGuard | None) -> None:
        self.allocator = ByteAllocator(1 << 15, guard=guard)
        sizes = {"rows": ROWS * ROW, "slots": ROWS * 8, "cache": SLOTS * ROW}
        made = {name: self.allocator.allocate(name, size) for name, size in sizes.items()}
        self.buffers = {name: Buffer(one.offset, one.requested) for name, one in made.items()}
        self.graph = GraphStandIn(self.allocator.memory)
        self.graph.record(self.buffers["rows"], self.buffers["slots"], self.buffers["cache"], ROW)
        self.allocator.view("rows").reshape(ROWS, ROW)[:] = np.arange(1, ROWS + 1, dtype=np.uint8)[:, None]
        if guard is not None:
            guard.capture("decode4", self.buffers, {"max_blocks": 3}, num_rows=ROWS)

    def set_slots(self, slots: list[int]) -> None:
        self.allocator.view("slots").view(np.int64)[:] = slots

    def cache(self) -> np.ndarray:
        return self.allocator.view("cache").reshape(SLOTS, ROW)[:, 0]


def test_a_replay_writes_the_captured_addresses() -> None:
    world = World(None)
    world.set_slots([5, 6, 7, 0])
    world.graph.replay()
    assert world.cache().tolist() == [4, 0, 0, 0, 0, 1, 2, 3] + [0] * 8


def test_without_a_guard_a_freed_buffer_is_written() -> None:
    """The fault itself: the cache's memory belongs to somebody else and is written all the same."""
    world = World(None)
    world.set_slots([5, 6, 7, 0])
    world.allocator.free("cache")
    world.allocator.allocate("other", SLOTS * ROW)
    world.graph.replay()
    assert world.allocator.view("other").any()


def test_with_a_guard_nothing_leased_is_freed_or_reused() -> None:
    guard = GraphGuard(trash_slots=[0])
    world = World(guard)
    for name in ("rows", "slots", "cache"):
        with pytest.raises(GraphHoldsMemory, match=f"KVC610.*'{name}' of graph 'decode4'"):
            world.allocator.free(name)
    guard.drop("decode4")
    world.allocator.free("cache")


def test_a_moved_buffer_or_a_changed_constant_stops_the_replay() -> None:
    guard = GraphGuard(trash_slots=[0])
    world = World(guard)
    guard.check_replay("decode4", world.buffers, {"max_blocks": 3})
    moved = world.buffers | {"slots": Buffer(world.buffers["slots"].address + 8, 32)}
    with pytest.raises(GraphHoldsMemory, match="'slots' of graph 'decode4' was captured as"):
        guard.check_replay("decode4", moved, {"max_blocks": 3})
    with pytest.raises(GraphHoldsMemory, match=r"'max_blocks' was captured as 3.*now it is 4"):
        guard.check_replay("decode4", world.buffers, {"max_blocks": 4})
    with pytest.raises(GraphHoldsMemory, match="now it is None"):
        guard.check_replay("decode4", world.buffers)


def test_padded_rows_write_the_trash_slot_only() -> None:
    guard = GraphGuard(trash_slots=[0])
    world = World(guard)
    known = {"max_blocks": 3}
    guard.check_replay("decode4", world.buffers, known, num_real=2, slots=[5, 6, 0, 0])
    for slots, said in (
        ([5, 6, -1, -1], "padded row 2 .* writes slot -1"),
        ([5, 0, 0, 0], "real row 1 .* writes slot 0"),
        ([5, 6, 0], "has 4 rows, 3 slots"),
    ):
        with pytest.raises(GraphHoldsMemory, match=said):
            guard.check_replay("decode4", world.buffers, known, num_real=2, slots=slots)


def test_minus_one_hits_the_last_slot() -> None:
    """Why a padding id must never be an index: slot -1 is the last row of the last block."""
    world = World(None)
    world.set_slots([5, -1, -1, -1])
    world.graph.replay()
    assert world.cache()[SLOTS - 1] == 4


def test_misuse() -> None:
    guard = GraphGuard()
    guard.capture("g", {})
    with pytest.raises(GraphHoldsMemory, match="captured already"):
        guard.capture("g", {})
    with pytest.raises(GraphHoldsMemory, match="never captured"):
        guard.drop("h")
    with pytest.raises(GraphHoldsMemory, match="dropped or never captured"):
        guard.check_replay("h", {})
    with pytest.raises(GraphHoldsMemory, match="negative slot"):
        GraphGuard(trash_slots=[-1])

"""The origin's 3072 -> 4096 and 6144 -> 8192, with and without the fault; canaries, red zones, leases."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.errors import BoundCrossed, GraphHoldsMemory, OutOfBlocks
from degarble.kvcache.byte_allocator import ByteAllocator
from degarble.kvcache.graph_guard import Buffer, GraphGuard


@pytest.mark.parametrize(("requested", "rounded", "past"), [(3072, 4096, 1024), (6144, 8192, 2048)])
def test_a_caller_that_takes_the_rounded_size_is_found(requested: int, rounded: int, past: int) -> None:
    allocator = ByteAllocator(1 << 16)
    one = allocator.allocate("kv", requested)
    assert (one.reserved, allocator.rounded(requested)) == (rounded, rounded)
    allocator.view("kv")[:] = 7
    allocator.check_integrity()
    allocator.memory[one.offset : one.offset + rounded] = 7
    (found,) = allocator.crossings()
    assert (found.first_byte, found.last_byte, found.is_red_zone_hit) == (requested, rounded - 1, False)
    with pytest.raises(BoundCrossed, match=f"{past} past the end"):
        allocator.free("kv")


@pytest.mark.parametrize(("requested", "rounded", "small"), [(3072, 4096, 1024), (6144, 8192, 2048)])
def test_a_reused_tail_turns_it_into_damage(requested: int, rounded: int, small: int) -> None:
    """With the fault planted the bytes past the end are another allocation's; without it nobody's."""
    damaged = {}
    for is_tail_reused in (False, True):
        allocator = ByteAllocator(1 << 16, is_tail_reused=is_tail_reused)
        one = allocator.allocate("kv", requested)
        allocator.allocate("later", small)
        allocator.view("later")[:] = 1
        allocator.memory[one.offset : one.offset + rounded] = 7
        damaged[is_tail_reused] = int((allocator.view("later") != 1).sum())
        assert bool(allocator.crossings()) is not is_tail_reused, "the canary has gone with the tail"
    assert damaged == {False: 0, True: small}


def test_the_red_zone_sees_what_passes_the_page() -> None:
    allocator = ByteAllocator(1 << 16, red_zone_bytes=64)
    one = allocator.allocate("a", 4096)
    second = allocator.allocate("b", 10)
    assert second.offset >= one.offset + one.reserved + 64
    allocator.memory[one.offset + 4096] ^= 0xFF
    (found,) = allocator.crossings()
    assert found.is_red_zone_hit and found.allocation.name == "a"
    with pytest.raises(BoundCrossed, match="bytes 4096 to 4096 were written, 1 past the end"):
        allocator.check()
    allocator.check("b")


def test_places_are_reused_and_do_not_overlap() -> None:
    allocator = ByteAllocator(20 * 4096, red_zone_bytes=0)
    rng = np.random.default_rng(3)
    for number in range(300):
        if allocator.live and rng.random() < 0.5:
            allocator.free(str(rng.choice(sorted(allocator.live))))
        else:
            try:
                allocator.allocate(str(number), int(rng.integers(1, 9000)))
            except OutOfBlocks:
                continue
        allocator.check_integrity()
    for name in list(allocator.live):
        allocator.free(name)
    assert allocator.allocate("all", 20 * 4096).offset == 0


def test_overlap_is_proved() -> None:
    allocator = ByteAllocator(1 << 14, is_tail_reused=True)
    one = allocator.allocate("a", 100)
    allocator.live["b"] = type(one)(name="b", offset=50, requested=10, reserved=10)
    with pytest.raises(BoundCrossed, match="a and b overlap at byte 50"):
        allocator.check_integrity()


def test_refused() -> None:
    allocator = ByteAllocator(8192)
    allocator.allocate("a", 1)
    for name, size in (("a", 1), ("b", 0)):
        with pytest.raises(BoundCrossed):
            allocator.allocate(name, size)
    with pytest.raises(OutOfBlocks, match="8256 bytes wanted"):
        allocator.allocate("c", 8192)
    with pytest.raises(BoundCrossed, match="'z' is freed"):
        allocator.free("z")


def test_leased_memory_is_not_freed() -> None:
    guard = GraphGuard()
    allocator = ByteAllocator(1 << 14, guard=guard)
    one = allocator.allocate("a", 100)
    guard.capture("decode", {"a": Buffer(one.offset, one.reserved)})
    with pytest.raises(GraphHoldsMemory, match="'a' of graph 'decode'"):
        allocator.free("a")
    guard.drop("decode")
    allocator.free("a")
    guard.capture("decode", {"a": Buffer(0, 8)})
    with pytest.raises(GraphHoldsMemory):
        allocator.allocate("b", 8)

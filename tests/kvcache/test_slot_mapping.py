"""Slots, last blocks, kernel blocks and context-parallel ranks, with the numbers of the cases in research."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from degarble.errors import BlockMisuse
from degarble.kvcache import slot_mapping as sm


def test_slots_of_the_case() -> None:
    table = [9, 4, 12]
    assert [sm.slot_of(table, p, 16) for p in (0, 15, 16, 31, 32, 40)] == [144, 159, 64, 79, 192, 200]
    assert sm.slot_mapping(table, 14, 34, 16) == [158, 159, *range(64, 80), 192, 193]
    assert sm.slot_mapping(table, 5, 5, 16) == []


def test_last_block() -> None:
    lengths = (1, 15, 16, 17, 32, 33)
    assert [sm.num_blocks_for(n, 16) for n in lengths] == [1, 1, 1, 2, 2, 3]
    assert [sm.last_block_length(n, 16) for n in lengths] == [1, 15, 16, 1, 16, 1]


def test_kernel_blocks() -> None:
    """bs 128, kernel 64, table [3], position 70: slot 454 both ways."""
    table = sm.kernel_block_table([3, -1], 128, 64)
    assert table == [6, 7, -1, -1]
    assert sm.slot_of(table, 70, 64) == sm.slot_of([3], 70, 128) == 454


def test_context_parallel_case() -> None:
    """bs 8, cp 4, interleave 2, rank 2, table [3, 7]."""
    slots = [sm.context_parallel_slot([3, 7], p, 8, cp=4, rank=2, interleave=2) for p in (0, 4, 5, 12, 13, 36, 37)]
    assert slots == [None, 24, 25, 26, 27, 56, 57]


@pytest.mark.parametrize(("cp", "interleave"), [(1, 1), (2, 1), (4, 2), (3, 4)])
def test_every_position_has_one_rank_and_a_slot_of_its_own(cp: int, interleave: int) -> None:
    table = [5, 2, 9]
    owners: dict[int, list[int]] = {}
    for position in range(3 * 8 * cp):
        found = [sm.context_parallel_slot(table, position, 8, cp=cp, rank=r, interleave=interleave) for r in range(cp)]
        (slot,) = [slot for slot in found if slot is not None]
        owners.setdefault(found.index(slot), []).append(slot)
    assert all(sorted(slots) == sorted(b * 8 + r for b in table for r in range(8)) for slots in owners.values())


def test_padding_goes_to_the_trash() -> None:
    assert sm.pad_slots([5, 6], 4, 0) == [5, 6, 0, 0]
    assert sm.pad_block_tables([[1], [2, 3]], 3) == [[1, -1, -1], [2, 3, -1]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sm.slot_of([9], 16, 16), "position 16 is in column 1, the table has 1"),
        (lambda: sm.slot_of([9], -1, 16), "in column -1"),
        (lambda: sm.slot_of([-1], 3, 16), "which was evicted"),
        (lambda: sm.last_block_length(0, 16), "has no last block"),
        (lambda: sm.pad_slots([1], 2, -1), "must be a slot, found -1"),
        (lambda: sm.pad_slots([1, 2, 3], 2, 0), "do not fit a batch of 2"),
        (lambda: sm.pad_block_tables([[1, 2]], 1), "does not fit 1"),
        (lambda: sm.kernel_block_table([1], 16, 12), "cannot be cut"),
        (lambda: sm.kernel_block_table([1], 16, 0), "cannot be cut"),
        (lambda: sm.context_parallel_slot([1], 0, 8, cp=2, rank=2), "do not fit blocks of 8"),
        (lambda: sm.context_parallel_slot([1], 0, 8, cp=2, rank=0, interleave=3), "do not fit blocks of 8"),
    ],
)
def test_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(BlockMisuse, match=said):
        call()

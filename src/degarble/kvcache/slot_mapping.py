"""From a position to the slot that holds it: slot = block_table[position // block_size] · block_size + remainder.

Positions count tokens of a sequence (`cache_index`), never RoPE angles (`position_ids`). All functions take a position
that lies outside the table, or on an evicted block, as the caller's fault and raise: -1 is never used as an index.
"""

from __future__ import annotations

from collections.abc import Sequence

from degarble.errors import BlockMisuse
from degarble.kvcache.block import NULL_BLOCK


def num_blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-num_tokens // block_size)


def last_block_length(num_tokens: int, block_size: int) -> int:
    """Rows used in the last block: from 1 to block_size, never 0."""
    if num_tokens < 1:
        raise BlockMisuse(f"an empty sequence has no last block ({num_tokens} tokens)")
    return (num_tokens - 1) % block_size + 1


def slot_of(block_table: Sequence[int], position: int, block_size: int) -> int:
    """The slot of one position."""
    column, row = divmod(position, block_size)
    if not 0 <= column < len(block_table):
        raise BlockMisuse(f"position {position} is in column {column}, the table has {len(block_table)}")
    block = block_table[column]
    if block == NULL_BLOCK:
        raise BlockMisuse(f"position {position} is in column {column}, which was evicted")
    return block * block_size + row


def slot_mapping(block_table: Sequence[int], start: int, end: int, block_size: int) -> list[int]:
    """Slots of positions [start, end), a block at a time."""
    slots: list[int] = []
    position = start
    while position < end:
        first = slot_of(block_table, position, block_size)
        rows = min(block_size - position % block_size, end - position)
        slots.extend(range(first, first + rows))
        position += rows
    return slots


def pad_slots(slots: Sequence[int], width: int, trash_slot: int) -> list[int]:
    """Slots of a padded batch: rows past the real ones write to a slot that nobody reads."""
    if trash_slot < 0:
        raise BlockMisuse(f"the trash slot must be a slot, found {trash_slot}: a negative one would index from the end")
    if len(slots) > width:
        raise BlockMisuse(f"{len(slots)} slots do not fit a batch of {width} rows")
    return [*slots, *[trash_slot] * (width - len(slots))]


def pad_block_tables(tables: Sequence[Sequence[int]], width: int, fill: int = NULL_BLOCK) -> list[list[int]]:
    """Tables of one width, as a kernel takes them. Raises BlockMisuse for a table that is wider."""
    for table in tables:
        if len(table) > width:
            raise BlockMisuse(f"a table of {len(table)} columns does not fit {width}")
    return [[*table, *[fill] * (width - len(table))] for table in tables]


def kernel_block_table(block_table: Sequence[int], block_size: int, kernel_block_size: int) -> list[int]:
    """The table in the ids of a kernel whose blocks are smaller: block b becomes b·r … b·r + r - 1."""
    if kernel_block_size < 1 or block_size % kernel_block_size:
        raise BlockMisuse(f"blocks of {block_size} cannot be cut into kernel blocks of {kernel_block_size}")
    ratio = block_size // kernel_block_size
    return [
        NULL_BLOCK if block == NULL_BLOCK else block * ratio + part for block in block_table for part in range(ratio)
    ]


def context_parallel_slot(
    block_table: Sequence[int], position: int, block_size: int, *, cp: int, rank: int, interleave: int = 1
) -> int | None:
    """The slot of a position on one context-parallel rank, or None where another rank owns it.

    A virtual block of block_size·cp tokens is dealt to the ranks in runs of `interleave`.
    """
    if cp < 1 or interleave < 1 or block_size % interleave or not 0 <= rank < cp:
        raise BlockMisuse(
            f"context parallel {cp}, rank {rank}, interleave {interleave} do not fit blocks of {block_size}"
        )
    column, inside = divmod(position, block_size * cp)
    if inside // interleave % cp != rank:
        return None
    row = inside // (cp * interleave) * interleave + inside % interleave
    return slot_of(block_table, column * block_size, block_size) + row

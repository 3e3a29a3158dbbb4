"""Every invariant of a block manager's state, judged from scratch: slow, obvious, and shared by tests and service."""

from __future__ import annotations

from collections import Counter

from degarble.kvcache.block import NULL_BLOCK
from degarble.kvcache.block_state import BlockState
from degarble.kvcache.sequence import Phase, Sequence


def problems(manager: BlockState) -> list[str]:
    """What is broken; empty when all of it holds."""
    found = manager.pool.problems() + manager.prefix_cache.problems()
    held = Counter(block for one in manager.sequences.values() for block in one.block_table if block != NULL_BLOCK)
    for block, count in enumerate(manager.pool.ref_count):
        if count != held[block]:
            found.append(f"block {block}: ref_count {count}, {held[block]} tables hold it")
    if manager.host_pool is not None:
        found += manager.host_pool.problems()
        hosted = Counter(block for one in manager.sequences.values() for block in one.host_blocks)
        for block, count in enumerate(manager.host_pool.ref_count):
            if count != hosted[block]:
                found.append(f"host block {block}: ref_count {count}, {hosted[block]} requests hold it")
    for sequence in manager.sequences.values():
        found += _of_sequence(manager, sequence)
    return found


def _of_sequence(manager: BlockState, sequence: Sequence) -> list[str]:
    name = f"request {sequence.request!r}"
    found: list[str] = []
    if not 0 <= sequence.num_computed <= sequence.num_scheduled <= len(sequence.token_ids):
        found.append(
            f"{name}: computed {sequence.num_computed}, scheduled {sequence.num_scheduled}, "
            f"known {len(sequence.token_ids)} are out of order"
        )
    if sequence.edges is not None:
        edges = manager.isolation.edges(sequence.token_ids, manager.block_size)
        if sequence.edges != edges:
            found.append(f"{name}: blocks end at {sequence.edges}, by the tokens at {edges}")
    if sequence.phase is not Phase.RUNNING:
        return [*found, f"{name}: {sequence.phase} and holds blocks"] if sequence.block_table else found
    columns = sequence.num_columns(sequence.num_scheduled)
    if len(sequence.block_table) != columns:
        found.append(
            f"{name}: {len(sequence.block_table)} columns for {sequence.num_scheduled} tokens, {columns} needed"
        )
    found += _of_window(manager, sequence, name)
    found += _of_published(manager, sequence, name)
    return found


def _of_window(manager: BlockState, sequence: Sequence, name: str) -> list[str]:
    evicted = [column for column, block in enumerate(sequence.block_table) if block == NULL_BLOCK]
    if evicted != list(range(sequence.num_evicted)):
        return [f"{name}: columns {evicted} are evicted, the first {sequence.num_evicted} should be"]
    first_read = 0 if manager.window is None else max(0, sequence.num_computed - manager.window + 1)
    too_early = [column for column in evicted if sequence.end_of(column) > first_read]
    return [f"{name}: columns {too_early} are evicted, position {first_read} is still read"] if too_early else []


def _of_published(manager: BlockState, sequence: Sequence, name: str) -> list[str]:
    """A published block is full, computed, and holds what it is published with."""
    found: list[str] = []
    for column, block in enumerate(sequence.block_table):
        entry = manager.prefix_cache.entry(block)
        if entry is None:
            continue
        start, end = sequence.start_of(column), sequence.end_of(column)
        ids = tuple(sequence.token_ids[start:end])
        if ids[: len(entry.token_ids)] != entry.token_ids[: len(ids)]:
            found.append(f"{name}: block {block} in column {column} is published with other tokens")
        elif sequence.num_scheduled > sequence.num_computed and end > sequence.num_computed:
            found.append(f"{name}: block {block} in column {column} is published and being written")
    return found

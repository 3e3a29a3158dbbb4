"""The last events of the KV cache, kept so that a slice of them is a whole trace: it begins with the state it needs.

The block manager tells its events (shared/TRACE.md is their schema). All of them would fill the memory, and a tail alone
proves nothing: its first event speaks of requests and blocks that nobody has introduced. So from time to time, between
two steps, the state is written down as events that would have led to it, and what is older is forgotten:

    published blocks   one finished request for each chain of them, which computed and stored it
    live requests      one request each that takes its stored blocks, computes the rest, and goes on

The slice is the older of two such states with everything since, so it holds at least `MAX_EVENTS` events where there were
as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from degarble.kvcache.block import NULL_BLOCK
from degarble.kvcache.block_manager import BlockManager
from degarble.kvcache.namespace import Namespace
from degarble.kvcache.prefix_cache import Entry
from degarble.kvcache.sequence import Phase, Sequence
from degarble_engine.engine.llm_engine import LLMEngine

MAX_EVENTS = 4000
SEAM = "seam"
"""Not of the schema: where a state begins, which is only told if nothing before it is."""
KEY_BYTES = 32
Event = dict[str, Any]


class TraceRing:
    """An observer of the block manager; `turn` is called between steps."""

    def __init__(self, manager: BlockManager) -> None:
        self._manager = manager
        self._old: list[Event] = []
        self._new: list[Event] = [{"ev": SEAM, "state": list(state_events(manager))}]

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        """Take one event."""
        self._new.append({"ev": event, **fields})

    def turn(self) -> None:
        """Begin again from the present state, if enough has come together."""
        if len(self._new) > MAX_EVENTS:
            self._old = self._new
            self._new = [{"ev": SEAM, "state": list(state_events(self._manager))}]

    def events(self) -> Iterator[Event]:
        """From the oldest state that is still known to now."""
        stored: set[str] = set()
        for event in self._all():
            if event["ev"] == "store":
                stored.update(event["h"])
            elif event["ev"] == "evict" and not stored.issuperset(event["h"]):
                continue  # of a chain whose beginning was gone when the state was taken
            yield event

    def _all(self) -> Iterator[Event]:
        for event in self._old + self._new:
            if event["ev"] != SEAM:
                yield event
            elif not self._old or event is self._old[0]:
                yield from event["state"]


def meta(engine: LLMEngine, model_name: str) -> Event:
    """The first line."""
    geometry, options = engine.cache.geometry, engine.options
    group: Event = {
        "g": 0, "kind": "mla" if engine.cache.is_latent else "full", "layers": list(range(geometry.num_layers)),
        "block_size": options.block_size, "num_blocks": options.num_gpu_blocks,
    }  # fmt: skip
    return {
        "ev": "meta", "schema": 1, "engine": "degarble", "model": model_name, "layers": geometry.num_layers,
        "num_kv_heads": geometry.num_kv_heads, "head_dim": geometry.head_dim, "block_size": options.block_size,
        "num_blocks": options.num_gpu_blocks, "groups": [group],
    }  # fmt: skip


def state_events(manager: BlockManager) -> Iterator[Event]:
    """Events of the schema that lead from nothing to the state of a manager that has no step open."""
    cache = manager.prefix_cache
    entries = {block: entry for block in range(manager.pool.num_blocks) if (entry := cache.entry(block)) is not None}
    told: set[bytes] = set()
    for sequence in manager.sequences.values():
        yield from _live(manager, sequence, entries, told)
    for number, chain in enumerate(_chains(entries)):
        rest = [(block, entries[block]) for block in chain]
        if any(entry.key not in told for _, entry in rest):
            yield from _stored(manager, f"before-{number}", rest, told)


def _chains(entries: Mapping[int, Entry]) -> Iterator[list[int]]:
    """From each published block without a continuation back to its beginning; blocks in the order of the text.

    A chain whose beginning is no longer published cannot be found by anybody and is left out.
    """
    by_key = {entry.key: block for block, entry in entries.items()}
    parents = {entry.parent for entry in entries.values()}
    for block, entry in entries.items():
        if entry.key in parents:
            continue
        chain = [block]
        while (above := by_key.get(entries[chain[-1]].parent)) is not None:
            chain.append(above)
        if len(entries[chain[-1]].parent) != KEY_BYTES:  # it hangs on a root, not on a key
            yield chain[::-1]


def _stored(manager: BlockManager, request: str, chain: list[tuple[int, Entry]], told: set[bytes]) -> Iterator[Event]:
    """A request that computed a chain and ended. Blocks that an earlier chain shares with it are taken by their hash."""
    known = [(block, entry) for block, entry in chain if entry.key in told]
    fresh = chain[len(known) :]
    told.update(entry.key for _, entry in fresh)
    ids = [token_id for _, entry in chain for token_id in entry.token_ids]
    start = sum(len(entry.token_ids) for _, entry in known)
    tags = tags_of(chain[0][1].parent)
    yield {"ev": "req", "req": request, "op": "new", "ids": ids, "ns": tags}
    if known:
        yield _hit(request, known, start)
        yield {"ev": "ref", "req": request, "b": [block for block, _ in known], "at": 0}
    blocks = [block for block, _ in fresh]
    yield {"ev": "alloc", "req": request, "b": blocks, "at": len(known)}
    yield from _computed(request, [block for block, _ in chain], start, len(ids), manager.block_size)
    for block, entry in fresh:
        yield _store(block, entry, tags)
    yield {"ev": "free", "req": request, "b": [block for block, _ in chain], "at": 0}
    yield {"ev": "req", "req": request, "op": "finish"}


def _store(block: int, entry: Entry, tags: dict[str, object]) -> Event:
    above = entry.parent.hex() if len(entry.parent) == KEY_BYTES else None
    return {
        "ev": "store", "h": [entry.key.hex()], "parent": above, "b": [block], "ids": list(entry.token_ids), "ns": tags,
    }  # fmt: skip


def tags_of(root: bytes) -> dict[str, object]:
    """The namespace of a chain by the root that it hangs on: `name:length:value` for each part."""
    parts: dict[str, str] = {}
    while root:
        name, size, rest = root.split(b":", 2)
        parts[name.decode()] = rest[: int(size)].decode("utf-8", "surrogatepass")
        root = rest[int(size) :]
    return Namespace(
        model=parts["model"],
        dtype=parts["dtype"],
        adapter=parts["adapter"],
        adapter_version=parts["adapter_version"],
        salt=parts["salt"],
    ).tags()


def _hit(request: str, known: list[tuple[int, Entry]], num_tokens: int) -> Event:
    return {
        "ev": "hit", "req": request, "h": [entry.key.hex() for _, entry in known], "b": [block for block, _ in known],
        "tok": num_tokens,
    }  # fmt: skip


def _computed(request: str, table: list[int], start: int, end: int, block_size: int) -> Iterator[Event]:
    """One step that computes [start, end) in a table without holes."""
    slots = [table[at // block_size] * block_size + at % block_size for at in range(start, end)]
    yield {"ev": "step", "step": f"{request}-step", "ph": "B", "blocks": sorted(set(table))}
    yield {"ev": "fwd", "req": request, "pos": [start, end], "slots": slots, "kv": end}
    yield {"ev": "step", "step": f"{request}-step", "ph": "E"}


def _live(manager: BlockManager, sequence: Sequence, entries: Mapping[int, Entry], told: set[bytes]) -> Iterator[Event]:
    """A request as it stands: what it shares, what it computed itself, and what of that it published."""
    name, table, tags = sequence.request, sequence.block_table, sequence.namespace.tags()
    yield {"ev": "req", "req": name, "op": "new", "ids": list(sequence.token_ids), "ns": tags}
    if sequence.phase is not Phase.RUNNING:
        yield {"ev": "req", "req": name, "op": "preempt"}
        return
    known: list[tuple[int, Entry]] = []
    for column, block in enumerate(table):
        entry = entries.get(block)
        if entry is None or entry.key not in told or sequence.end_of(column) >= len(sequence.token_ids):
            break
        known.append((block, entry))
    start = len(known) * manager.block_size
    if known:
        yield _hit(name, known, start)
        yield {"ev": "ref", "req": name, "b": [block for block, _ in known], "at": 0}
    own = [block for block in table[len(known) :] if block != NULL_BLOCK]
    if own:
        yield {"ev": "alloc", "req": name, "b": own, "at": len(known)}
    if sequence.num_computed > start:
        yield from _computed(name, table, start, sequence.num_computed, manager.block_size)
    for block in own:
        entry = entries.get(block)
        if entry is not None and entry.key not in told:
            told.add(entry.key)
            yield _store(block, entry, tags)

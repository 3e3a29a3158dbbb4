"""The prefix map: store, hit, evict. Judges KVC608, KVC625 and KVC627, and evictions without a store.

An entry remembers the content that was stored. Two blocks may be stored under one hash (two copies), each evicted by
itself; one hash for two contents, or for two parents, is a collision.
"""

from __future__ import annotations

from degarble.trace.event import Evict, Hit, Name, Store
from degarble.trace.namespace import base_of, namespace_of, token_of
from degarble.trace.pool import UNSETTLED, WILD, Block, Sequence, Table, Value
from degarble.trace.state import State


class Entry:
    """One hash, its content, and the blocks that hold it."""

    __slots__ = ("blocks", "content", "key", "parent", "prefixes")

    def __init__(self, key: tuple[int, Name], parent: Name | None, content: tuple[Value, ...], prefixes: PrefixMap):
        self.key = key
        self.parent = parent
        self.content = content
        self.blocks: list[Block] = []
        self.prefixes = prefixes

    def drop(self, block: Block) -> None:
        """Forget one copy; the entry goes with its last."""
        self.blocks.remove(block)
        block.entry = None
        if not self.blocks:
            self.prefixes.pop(self.key, None)


PrefixMap = dict[tuple[int, Name], Entry]


class PrefixJudge:
    """Follows the prefix map and judges what enters it and what is taken from it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.entries: PrefixMap = {}

    def on_store(self, event: Store) -> None:
        """Blocks are published: full, computed by finished steps, and with the content they are said to have."""
        if len(event.h) != len(event.b):
            self.state.fail("KVC623", event, f"store of {len(event.h)} hashes and {len(event.b)} blocks")
        parent = event.parent
        per_block = len(event.ids) // len(event.b) if event.ids and event.b else 0
        base = base_of(event.ns)
        for index, (name, block_id) in enumerate(zip(event.h, event.b, strict=False)):
            block = self.state.checked_block(event, block_id, None)
            if block is None:
                continue
            told = None
            if event.ids is not None:
                told = [base + token for token in event.ids[index * per_block : (index + 1) * per_block]]
            self._publish(event, block, name, parent, told)
            parent = name

    def _publish(self, event: Store, block: Block, name: Name, parent: Name | None, told: list[Value] | None) -> None:
        problem = self._content_problem(event, block, told)
        if problem is None:
            problem = self._entry_problem(event, block, name, parent)
        if problem is not None:
            rule, message = problem
            owner = block.holders[0].owner.name if block.holders else None
            self.state.fail(rule, event, message, request=owner, block=block, measured={"rows": len(block.rows)})
        if block.entry is not None:
            block.entry.drop(block)
        key = (event.g, name)
        entry = self.entries.get(key)
        if entry is None:
            content = block.rows if told is None or self.state.geometry(event.g).cp > 1 else told
            entry = self.entries[key] = Entry(key, parent, tuple(content), self.entries)
        entry.blocks.append(block)
        block.entry = entry
        block.life.append((event.n, f"published as {str(name)[:16]}"))

    def _content_problem(self, event: Store, block: Block, told: list[Value] | None) -> tuple[str, str] | None:
        geometry = self.state.geometry(event.g)
        size = geometry.block_size
        if not size:
            return None
        rows = block.rows[:size]
        written = sum(value is not None for value in rows)
        if written < size:
            return "KVC627", f"block {block.id} is published with {written} of its {size} rows written"
        if block.step is not None and block.step.is_open:
            return "KVC627", f"block {block.id} is published while step {block.step.name}, which fills it, is open"
        if told is None or geometry.cp > 1 or any(value is WILD for value in rows):
            return None
        if len(told) != size:
            return "KVC627", f"block {block.id} is published with {len(told)} token ids, it has {size} rows"
        if told == rows:
            return None
        row = next(row for row in range(size) if told[row] != rows[row])
        found = rows[row]
        if found is UNSETTLED:
            return "KVC627", f"block {block.id} is published while row {row} holds a token that was not accepted"
        if token_of(found) == token_of(told[row]) and namespace_of(found) != namespace_of(told[row]):
            return "KVC608", f"block {block.id} is published under another namespace than that it was computed in"
        return (
            "KVC627",
            f"block {block.id} is published as token {token_of(told[row])} in row {row}, it holds {token_of(found)}",
        )

    def _entry_problem(self, event: Store, block: Block, name: Name, parent: Name | None) -> tuple[str, str] | None:
        if block.entry is not None and block.entry.key != (event.g, name):
            old = str(block.entry.key[1])[:16]
            return "KVC627", f"block {block.id} is published as {str(name)[:16]} while the map knows it as {old}"
        entry = self.entries.get((event.g, name))
        size = self.state.geometry(event.g).block_size
        if entry is None or not size:
            return None
        if entry.parent != parent:
            return "KVC608", f"hash {str(name)[:16]} stands for two prefixes: after {entry.parent} and after {parent}"
        is_known = not any(value is WILD for value in (*entry.content, *block.rows))
        if is_known and list(entry.content) != block.rows[:size]:
            return (
                "KVC608",
                f"hash {str(name)[:16]} stands for two contents, of blocks {entry.blocks[0].id} and {block.id}",
            )
        return None

    def on_hit(self, event: Hit) -> None:
        """Blocks are taken for a prefix: in the map, and with the request's own tokens and namespace."""
        sequence = self.state.find(event, event.req)
        if sequence is None:
            return
        table = self.state.table(sequence, event.g)
        if len(event.h) != len(event.b):
            self.state.fail("KVC623", event, f"hit of {len(event.h)} hashes and {len(event.b)} blocks")
        if self._namespace_differs(event, sequence):
            return
        span = table.geometry.span
        start = 0 if event.parent is None or not span else table.valid // span
        for column, (name, block_id) in enumerate(zip(event.h, event.b, strict=False), start):
            if block_id in (-1, table.geometry.null_block):
                continue
            block = self.state.checked_block(event, block_id, sequence.name)
            if block is not None and not self._judge_hit(event, table, column, name, block):
                break
        taken = event.tok if event.tok is not None else (start + len(event.b)) * span
        self._leaves_something(event, sequence, taken, (start + len(event.b)) * span)
        table.valid = table.lo = max(0, taken)
        table.set_drafted(False, False)

    def _namespace_differs(self, event: Hit, sequence: Sequence) -> bool:
        if event.ns is None or base_of(event.ns) == sequence.base:
            return False
        self.state.fail(
            "KVC608",
            event,
            f"{sequence.name} takes a prefix of another namespace (adapter, salt or image) than its own",
            request=sequence.name,
            block=event.b[0] if event.b else None,
            position=0,
        )
        return True

    def _judge_hit(self, event: Hit, table: Table, column: int, name: Name, block: Block) -> bool:
        sequence = table.owner
        span = table.geometry.span
        position = column * span
        if block.entry is None or block.entry.key != (event.g, name):
            known = "nothing" if block.entry is None else f"hash {str(block.entry.key[1])[:16]}"
            self.state.fail(
                "KVC627",
                event,
                f"{sequence.name} takes block {block.id} for hash {str(name)[:16]}, where the map has {known} for it",
                request=sequence.name,
                block=block,
                position=position,
            )
            return False
        if sequence.is_blind or table.geometry.cp > 1 or not span:
            return True
        expected = sequence.values[position : position + span]
        content = block.entry.content[: len(expected)]
        if len(block.entry.content) < span:
            return True
        for row, (found, wanted) in enumerate(zip(content, expected, strict=False)):
            if found is not WILD and found != wanted:
                self._report_content(event, sequence, block, position + row, found, wanted)
                return False
        return True

    def _report_content(
        self, event: Hit, sequence: Sequence, block: Block, position: int, found: Value, wanted: Value
    ) -> None:
        if isinstance(found, int) and token_of(found) == token_of(wanted):
            what = "was computed in another namespace (adapter, salt or image)"
        else:
            what = f"stands for token {token_of(found) if isinstance(found, int) else found}, not {token_of(wanted)}"
        self.state.fail(
            "KVC608",
            event,
            f"{sequence.name} takes block {block.id} for its prefix; from position {position} on the block {what}",
            request=sequence.name,
            block=block,
            position=position,
            measured={"token_id": token_of(found) if isinstance(found, int) else None},
            bound={"token_id": token_of(wanted)},
        )

    def _leaves_something(self, event: Hit, sequence: Sequence, taken: int, covered: int) -> None:
        known = len(sequence.values)
        if sequence.is_blind:
            return
        if taken >= known:
            message = f"{sequence.name} takes {taken} of its {known} tokens from the cache: nothing is left to compute"
        elif covered and taken > covered:
            message = f"{sequence.name} takes {taken} tokens from blocks that hold {covered}"
            known = covered + 1
        else:
            return
        self.state.fail(
            "KVC625",
            event,
            message,
            request=sequence.name,
            position=taken,
            measured={"tokens_taken": taken},
            bound={"max": known - 1},
        )

    def on_evict(self, event: Evict) -> None:
        """Entries leave the map; each must have been stored."""
        if len(event.h) != len(event.b):
            self.state.fail("KVC623", event, f"evict of {len(event.h)} hashes and {len(event.b)} blocks")
        for name, block_id in zip(event.h, event.b, strict=False):
            block = self.state.checked_block(event, block_id, None)
            if block is None:
                continue
            if block.entry is None or block.entry.key != (event.g, name):
                self.state.fail(
                    "KVC623",
                    event,
                    f"hash {str(name)[:16]} of block {block.id} is evicted and was not stored, or evicted before",
                    block=block,
                )
                continue
            block.entry.drop(block)
            block.life.append((event.n, "evicted from the prefix map"))

"""The memory of a stress run, and what must be read from it.

The memory is an array with one number per slot. A step writes the number of every token (`reference.row_value`) to the
slot that the allocator names; after each operation every readable row of every request is compared with the reference.
One number stands for the whole context of a row, so a stale block, a shared one that should not be, a lost copy and a
slot beside the right one are all seen at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from degarble.kvcache.allocator import Allocator
from degarble.kvcache.reference import ReferenceCache

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Size and features of the world."""

    num_blocks: int = 40
    block_size: int = 16
    window: int | None = None
    num_host_blocks: int = 0
    max_requests: int = 8
    max_tokens: int = 300
    trash_block: int | None = None
    is_plainly_cut: bool = True
    """Whether blocks begin at multiples of block_size; False asks the allocator for its `slots`."""


class BreachError(Exception):
    """Carries a breach out of the run."""

    def __init__(self, rule: str, message: str, **place: Any) -> None:
        super().__init__(message)
        self.rule = rule
        self.place = place


@dataclass(slots=True)
class OpenStep:
    """A step that is still reading and writing."""

    step: Any
    request: str
    start: int
    end: int
    slots: Rows
    """Of all rows it reads and writes."""
    values: Rows


class StressMemory:
    """What an allocator manages, as it should be; every method that judges raises BreachError."""

    def __init__(self, allocator: Allocator, setting: Setting) -> None:
        self.allocator: Any = allocator
        self.setting = setting
        self.memory: Rows = np.zeros(setting.num_blocks * setting.block_size, np.int64)
        self.host: Rows = np.zeros((max(1, setting.num_host_blocks), setting.block_size), np.int64)
        self.reference = ReferenceCache()
        self.state: dict[str, str] = {}
        """Request -> running, preempted, swapped."""
        self.steps: list[OpenStep] = []
        self.num_opened = 0
        self.num_rows_read = 0
        self.done: dict[str, int] = {}
        """How often each kind of operation was carried out, for the report."""
        self._values: dict[str, Rows] = {}

    def _expected(self, name: str) -> Rows:
        values = self._values.get(name)
        if values is None or len(values) != len(self.reference.token_ids[name]):
            values = self._values[name] = np.array(self.reference.expected(name), np.int64)
        return values

    def _slots_of(self, name: str, start: int, end: int, kind: str) -> Rows:
        """Slots by the table and the formula; every block in between is judged."""
        size = self.setting.block_size
        if start >= end:
            return np.zeros(0, np.int64)
        if not self.setting.is_plainly_cut:
            return np.array(self.allocator.slots(name, start, end), np.int64)
        table = np.array(self.allocator.block_table(name)[: (end - 1) // size + 1], np.int64)
        if len(table) * size < end:
            rule = "KVC616" if kind == "settle" else "KVC602"
            raise BreachError(rule, f"the table has {len(table)} columns, {end} rows are in use", request=name)
        positions = np.arange(start, end)
        blocks = table[positions // size]
        bad = np.flatnonzero((blocks < 0) | (blocks >= self.setting.num_blocks) | (blocks == self._trash))
        if bad.size:
            position, block = int(positions[bad[0]]), int(blocks[bad[0]])
            is_evicted = block == getattr(self.allocator, "null_block", -1) and self.setting.window is not None
            rule = "KVC615" if is_evicted else "KVC603"
            raise BreachError(
                rule, f"position {position} is still read and its block is {block}", request=name, position=position
            )
        return blocks * size + positions % size

    @property
    def _trash(self) -> int:
        return -1 if self.setting.trash_block is None else self.setting.trash_block

    def _write(self, name: str, start: int, end: int, slots: Any) -> None:
        """Write the rows of a step to the slots that the allocator named, if they are the right ones."""
        given = np.array(slots, np.int64)
        if given.shape != (end - start,):
            raise BreachError("KVC602", f"{given.size} slots for {end - start} tokens", request=name)
        bad = np.flatnonzero((given < 0) | (given >= self.memory.size))
        if bad.size:
            slot, position = int(given[bad[0]]), start + int(bad[0])
            message = f"slot {slot} lies outside the pool of {self.memory.size} slots"
            raise BreachError("KVC603", message, request=name, slot=slot, position=position)
        expected = self._slots_of(name, start, end, "step")
        wrong = np.flatnonzero(given != expected)
        if wrong.size:
            at = int(wrong[0])
            message = f"position {start + at} is written to slot {given[at]}, by the table it is {expected[at]}"
            raise BreachError("KVC602", message, request=name, slot=int(given[at]), position=start + at)
        for block in sorted(set((given // self.setting.block_size).tolist())):
            self._check_foreign(block, name)
        self.memory[given] = self._expected(name)[start:end]

    def _check_foreign(self, block: int, name: str) -> None:
        """Nobody else may hold a block that is written; nor may an open step of another request."""
        for other, state in self.state.items():
            if other != name and state == "running" and block in self.allocator.block_table(other):
                raise BreachError("KVC604", f"block {block} is written and {other} holds it", request=name, block=block)
        for step in self.steps:
            if step.request != name and block in set((step.slots // self.setting.block_size).tolist()):
                message = f"block {block} is written while a step of {step.request} still reads it"
                raise BreachError("KVC617", message, request=name, block=block)

    def _copy(self, copies: Any, name: str) -> None:
        pages = self.memory.reshape(-1, self.setting.block_size)
        for source, target, num_rows in copies:
            self._check_foreign(target, name)
            pages[target, :num_rows] = pages[source, :num_rows]

    def _check_all(self, kind: str) -> None:
        """Every readable row of every running request, and the allocator's own proof."""
        for name, state in self.state.items():
            if state != "running":
                continue
            end = len(self.reference.rows[name])
            start = 0 if self.setting.window is None else max(0, end - self.setting.window + 1)
            slots = self._slots_of(name, start, end, kind)
            self.num_rows_read += len(slots)
            wrong = np.flatnonzero(self.memory[slots] != self._expected(name)[start:end])
            if wrong.size:
                position, slot = start + int(wrong[0]), int(slots[wrong[0]])
                rule = "KVC608" if kind in ("open", "resume") else "KVC606"
                message = f"position {position} of {name} reads slot {slot}, which holds another context's row"
                raise BreachError(rule, message, request=name, slot=slot, position=position)
        prove = getattr(self.allocator, "check_integrity", None)
        if prove is not None:
            try:
                prove()
            except Exception as error:
                raise BreachError("KVC605", f"check_integrity: {error}") from None

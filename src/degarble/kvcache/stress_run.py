"""One random life of an allocator: operations on requests, judged by `stress_memory.py` after each of them.

An operation chooses its request by number, modulo what is there, so that any part of a list of operations is a list of
operations: that is what makes shrinking possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from degarble.kvcache.namespace import ImageSpan, Namespace
from degarble.kvcache.stress_memory import BreachError, OpenStep, Setting, StressMemory

NAMESPACES: tuple[dict[str, Any], ...] = (
    {},
    {"adapter": "x"},
    {"salt": "x"},
    {"adapter": "x", "adapter_version": "2"},
    {"images": (ImageSpan(start=3, length=4, digest="cat"),)},
    {"images": (ImageSpan(start=3, length=4, digest="dog"),)},
)
MAX_OPEN_STEPS = 4


@dataclass(frozen=True, slots=True)
class Operation:
    """What to do, and two numbers that choose on what and how much."""

    kind: str
    choice: int
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """The first broken invariant of a run."""

    rule: str
    message: str
    operation: int
    """Its number in the list."""
    request: str | None = None
    block: int | None = None
    slot: int | None = None
    position: int | None = None


class StressRun(StressMemory):
    """Executes operations until one breaks an invariant."""

    def execute(self, operations: list[Operation]) -> Breach | None:
        """All of them, then the end of everything."""
        for number, operation in enumerate([*operations, Operation("close", 0, 0)]):
            try:
                if self._perform(operation):
                    self.done[operation.kind] = self.done.get(operation.kind, 0) + 1
                self._check_all(operation.kind)
            except BreachError as breach:
                return Breach(rule=breach.rule, message=str(breach), operation=number, **breach.place)
        return None

    def _perform(self, operation: Operation) -> bool:
        action = getattr(self, f"_do_{operation.kind}")
        try:
            return bool(action(operation.choice, operation.amount))
        except BreachError:
            raise
        except Exception as error:
            if type(error).__name__ == "OutOfBlocks":
                return False
            raise BreachError("KVC605", f"{operation.kind} raised {type(error).__name__}: {error}") from None

    def _pick(self, choice: int, state: str, *, is_idle: bool = False) -> str | None:
        busy = {step.request for step in self.steps} if is_idle else set()
        names = [name for name, found in self.state.items() if found == state and name not in busy]
        return names[choice % len(names)] if names else None

    def _do_open(self, choice: int, amount: int) -> bool:
        if len(self.state) >= self.setting.max_requests:
            return False
        name = f"r{self.num_opened}"
        self.num_opened += 1
        ids = prompt(choice, amount, self.setting)
        tags = NAMESPACES[max(0, choice // 7 % 12 - 6)]
        cached = self.allocator.open(name, list(ids), dict(tags))
        if not 0 <= cached < len(ids):
            raise BreachError(
                "KVC625", f"{cached} of {len(ids)} tokens are cached: none is left to compute", request=name
            )
        self.reference.open(name, ids, Namespace(**tags), num_cached=cached)
        self.state[name] = "running"
        return True

    def _do_step(self, choice: int, amount: int) -> bool:
        """Schedule a chunk or a decode step, with drafts now and then, and write its rows."""
        name = self._pick(choice, "running", is_idle=True)
        if name is None or len(self.steps) >= MAX_OPEN_STEPS:
            return False
        known = len(self.reference.token_ids[name]) - self.reference.num_scheduled[name]
        if known < 1:
            return False
        num_tokens = known if amount % 3 else 1 + amount % known
        is_drafted = num_tokens == known and amount % 5 == 0
        drafts = [(choice + 13 * at) % 97 for at in range(amount % 7)] if is_drafted else []
        if len(self.reference.token_ids[name]) + len(drafts) >= self.setting.max_tokens:
            return False
        slots, copies = self.allocator.schedule(name, num_tokens, drafts)
        start, end = self.reference.schedule(name, num_tokens, drafts)
        self._copy(copies, name)
        begin = getattr(self.allocator, "begin_step", None)
        step = begin() if begin else None
        self._write(name, start, end, slots)
        read_from = 0 if self.setting.window is None else max(0, start - self.setting.window + 1)
        every = self._slots_of(name, read_from, end, "step")
        self.steps.append(OpenStep(step, name, start, end, every, self._expected(name)[read_from:end]))
        if begin is None or amount % 4:
            return self._do_settle(len(self.steps) - 1, amount)
        return True

    def _do_settle(self, choice: int, amount: int) -> bool:
        """A step ends: what it read and wrote must still be there; then it is completed, with drafts rejected."""
        if not self.steps:
            return False
        step = self.steps.pop(choice % len(self.steps))
        wrong = np.flatnonzero(self.memory[step.slots] != step.values)
        if wrong.size:
            slot = int(step.slots[wrong[0]])
            raise BreachError(
                "KVC617", f"slot {slot} was rewritten while a step read it", request=step.request, slot=slot
            )
        if step.step is not None:
            self.allocator.end_step(step.step)
        name = step.request
        if self.state.get(name) != "running" or self.reference.num_scheduled[name] != step.end:
            return True
        drafts = self.reference.num_drafts[name]
        ids = self.reference.token_ids[name]
        new_ids: list[int] = []
        if drafts or step.end == len(ids):
            accepted = ids[len(ids) - drafts :][: amount % (drafts + 1)]
            new_ids = [*accepted, (amount * 31 + choice) % 97]
        self.allocator.complete(name, new_ids)
        self.reference.complete(name, new_ids)
        self._values.pop(name, None)
        self._check_length(name, drafts)
        return True

    def _check_length(self, name: str, drafts: int) -> None:
        counted = getattr(self.allocator, "num_computed", None)
        expected = len(self.reference.rows[name])
        if counted is not None and counted(name) != expected:
            rule = "KVC616" if drafts else "KVC626"
            raise BreachError(rule, f"{counted(name)} rows are computed by the allocator, {expected} are", request=name)

    def _do_fork(self, choice: int, amount: int) -> bool:
        name = self._pick(choice, "running", is_idle=True)
        if name is None or not hasattr(self.allocator, "fork") or len(self.state) >= self.setting.max_requests:
            return False
        child = f"r{self.num_opened}"
        self.num_opened += 1
        self.allocator.fork(name, child)
        self.reference.fork(name, child)
        self.state[child] = "running"
        return True

    def _do_preempt(self, choice: int, amount: int) -> bool:
        name = self._pick(choice, "running")
        if name is None or not hasattr(self.allocator, "preempt"):
            return False
        self.allocator.preempt(name)
        self.reference.preempt(name)
        self.state[name] = "preempted"
        return True

    def _do_swap(self, choice: int, amount: int) -> bool:
        name = self._pick(choice, "running", is_idle=True)
        if name is None or not hasattr(self.allocator, "swap_out"):
            return False
        for block, host in self.allocator.swap_out(name):
            self.host[host] = self.memory.reshape(-1, self.setting.block_size)[block]
        self.reference.preempt(name)
        self.state[name] = "swapped"
        return True

    def _do_resume(self, choice: int, amount: int) -> bool:
        name = self._pick(choice, "preempted")
        if name is not None:
            cached = self.allocator.resume(name) or 0
            if not 0 <= cached < len(self.reference.token_ids[name]):
                raise BreachError("KVC625", f"{cached} tokens are cached on resume: none is left", request=name)
            self.reference.resume(name, num_cached=cached)
        else:
            name = self._pick(choice, "swapped")
            if name is None:
                return False
            for host, block in self.allocator.swap_in(name):
                self._check_foreign(block, name)
                self.memory.reshape(-1, self.setting.block_size)[block] = self.host[host]
        self.state[name] = "running"
        self._values.pop(name, None)
        return True

    def _do_finish(self, choice: int, amount: int) -> bool:
        name = self._pick(choice, ("running", "running", "preempted", "swapped")[amount % 4])
        if name is None:
            return False
        self._finish(name)
        return True

    def _finish(self, name: str) -> None:
        self.allocator.finish(name)
        self.reference.finish(name)
        del self.state[name]
        self._values.pop(name, None)

    def _do_close(self, choice: int, amount: int) -> bool:
        """End all steps and requests: then every block is free."""
        while self.steps:
            self._do_settle(0, amount)
        for name in list(self.state):
            self._finish(name)
        total = self.setting.num_blocks - (self.setting.trash_block is not None)
        free = self.allocator.num_free() if hasattr(self.allocator, "num_free") else total
        if free != total:
            raise BreachError("KVC605", f"{free} of {total} blocks are free after every request has ended")
        return True


def prompt(choice: int, amount: int, setting: Setting) -> list[int]:
    """A shared beginning of k·block_size tokens (or one more or less), then a tail of its own: A, B, A again."""
    size = setting.block_size
    shared = max(0, (amount % 5) * size + (-1, 0, 0, 1)[choice // 36 % 4])
    tail = (1 + amount // 5 % (2 * size)) if choice % 4 > 1 else 0
    story, own = choice % 3, choice % 101
    if amount % 4 == 0:  # one of six whole prompts that come again and again, ending at a block
        shared, tail = (1 + amount // 4 % 2) * size, 0
    ids = [(story * 31 + at * at + at // 7) % 97 for at in range(shared)]
    ids += [(own * 17 + at * 5 + 1) % 97 for at in range(tail)]
    return ids[: setting.max_tokens // 2] or [own]

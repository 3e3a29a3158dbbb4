"""Several files of one run: context-parallel ranks side by side, or a scheduler and a worker joined by `step`.

Ranks are replayed one by one, each with its own table; a rank given twice, or one that is not below `cp`, is KVC622.
A scheduler writes requests and tables, its worker the forwards. The worker's events of a step belong between that
step's B and E in the scheduler's file: they are taken in where the scheduler begins the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from degarble.errors import TargetError
from degarble.trace.event import Broken, Fwd, Meta, Name, Req, Step
from degarble.trace.reader import Item, read_items
from degarble.trace.replay import Replay, Verdict, replay_items
from degarble.trace.violation import Violation

PEEK_BATCHES = 64
"""Batches in which a file must show whether it is a scheduler's or a worker's."""


def replay_files(paths: Sequence[str]) -> Verdict:
    """The verdict of all files together. Raises TargetError where a file is no trace."""
    names = [PurePath(path).name for path in paths]
    if len(paths) == 1:
        verdict = replay_items(read_items(paths[0]), file=names[0])
        return _is_trace(verdict, paths[0])
    roles = [_role(path) for path in paths]
    if len(paths) == 2 and {role.is_scheduler for role in roles} == {True, False} and roles[0].cp == roles[1].cp == 1:
        scheduler, worker = sorted(range(2), key=lambda i: not roles[i].is_scheduler)
        return _joined(paths[scheduler], paths[worker], names[scheduler], names[worker])
    return _ranks(paths, names, roles)


class _Role:
    """What the beginning of a file shows."""

    def __init__(self) -> None:
        self.is_scheduler = False
        self.cp = 1
        self.rank: int | None = None


def _role(path: str) -> _Role:
    role = _Role()
    for number, batch in enumerate(read_items(path)):
        for item in batch:
            if isinstance(item, Meta):
                role.cp = item.cp
                role.rank = item.rank
            elif isinstance(item, Req):
                role.is_scheduler = True
                return role
            elif isinstance(item, Fwd):
                return role
        if number >= PEEK_BATCHES:
            break
    return role


def _is_trace(verdict: Verdict, path: str) -> Verdict:
    if not verdict.num_events and not verdict.unknown:
        held = f"none of its {verdict.num_lines} lines is an event" if verdict.num_lines else "the file is empty"
        raise TargetError(f"{path}: no KV-cache trace: {held}")
    return verdict


def _ranks(paths: Sequence[str], names: Sequence[str], roles: Sequence[_Role]) -> Verdict:
    verdicts = []
    seen: dict[int, str] = {}
    extra: list[Violation] = []
    for index, (path, name, role) in enumerate(zip(paths, names, roles, strict=True)):
        rank = role.rank if role.rank is not None else index
        if rank in seen or (role.cp > 1 and not 0 <= rank < role.cp):
            what = (
                f"rank {rank} writes two files, {seen[rank]} and {name}"
                if rank in seen
                else f"rank {rank} of {role.cp}"
            )
            extra.append(Violation(rule="KVC622", line=0, file=name, message=what, key="rank"))
        seen[rank] = name
        verdicts.append(_is_trace(replay_items(read_items(path), file=name, rank=rank), path))
    cp = max(role.cp for role in roles)
    merged = _merge(verdicts)
    merged.violations = extra + merged.violations
    if cp > 1 and len(seen) < cp:
        merged.unjudged["other ranks"] = f"{len(seen)} of {cp} context-parallel ranks were given"
    return merged


def _merge(verdicts: Sequence[Verdict]) -> Verdict:
    merged = replace(verdicts[0])
    merged.violations = sorted((v for one in verdicts for v in one.violations), key=lambda v: v.line)
    merged.num_events = sum(one.num_events for one in verdicts)
    merged.num_lines = sum(one.num_lines for one in verdicts)
    merged.kinds = frozenset().union(*(one.kinds for one in verdicts))
    merged.unknown = {name: n for one in verdicts for name, n in one.unknown.items()}
    merged.unjudged = {what: reason for one in verdicts for what, reason in one.unjudged.items()}
    merged.further = {}
    for one in verdicts:
        for rule, count in one.further.items():
            merged.further[rule] = merged.further.get(rule, 0) + count
    return merged


def _joined(scheduler: str, worker: str, scheduler_name: str, worker_name: str) -> Verdict:
    """Replay the scheduler's events with the worker's of each step in their place."""
    replay = Replay(file=scheduler_name, checks_counter=False)
    counter = Counter(replay, scheduler_name)
    segments = _Segments(worker, Counter(replay, worker_name))
    for batch in read_items(scheduler):
        for item in batch:
            if isinstance(item, Step) and item.ph == "E":
                _feed(replay, worker_name, segments.take(item.step))
            counter.check(item)
            _feed(replay, scheduler_name, [item])
            if isinstance(item, Step) and item.ph == "B":
                _feed(replay, worker_name, segments.take(item.step))
    _feed(replay, worker_name, segments.rest())
    return _is_trace(replay.finish(), scheduler)


def _feed(replay: Replay, file: str, items: list[Item]) -> None:
    replay.journal.file = file
    for item in items:
        replay.feed([item])


class Counter:
    """The gap-free counter of one of several writers."""

    def __init__(self, replay: Replay, file: str) -> None:
        self.replay = replay
        self.file = file
        self.next = 0

    def check(self, item: Item) -> None:
        """A gap is KVC623, at the event after it."""
        if isinstance(item, Broken) and not item.has_counter:
            self.next += 1
            return
        if item.n != self.next:
            message = f"the counter goes from {self.next - 1} to {item.n}"
            self.replay.journal.file = self.file
            self.replay.state.fail("KVC623", item.n, message, key=f"n of {self.file}")
        self.next = item.n + 1


class _Segments:
    """The worker's events by step, read on as they are asked for."""

    def __init__(self, path: str, counter: Counter) -> None:
        self._items = self._counted(path, counter)
        self._waiting: dict[Name | None, list[Item]] = {}
        self._open: Name | None = None

    @staticmethod
    def _counted(path: str, counter: Counter) -> Iterator[Item]:
        for batch in read_items(path):
            for item in batch:
                counter.check(item)
                yield item

    def take(self, step: Name | None) -> list[Item]:
        """Events of a step, as far as its E, and those right before it; those of other steps wait."""
        if step in self._waiting:
            return self._waiting.pop(step)
        for item in self._items:
            if isinstance(item, Step):
                self._open = item.step if item.ph == "B" else None
                if item.ph == "B":
                    self._waiting.setdefault(item.step, []).extend(self._waiting.pop(None, []))
                elif item.step == step:
                    return self._waiting.pop(step, [])
                continue
            if isinstance(item, Meta):
                continue
            self._waiting.setdefault(self._open, []).append(item)
        return self._waiting.pop(step, [])

    def rest(self) -> list[Item]:
        """What no step asked for."""
        left: list[Item] = [item for items in self._waiting.values() for item in items]
        left += [item for item in self._items if not isinstance(item, Step | Meta)]
        return left

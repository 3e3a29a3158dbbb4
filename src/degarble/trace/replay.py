"""Replays a trace through all its invariants in one pass, and names the first violating event.

The loop itself, with the short way of plain decodes, is in `plain_decode.py`; all else goes to one judge per noun.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from degarble.errors import TargetError
from degarble.trace import event
from degarble.trace.declared import MetaJudge
from degarble.trace.event import SCHEMA, AnyEvent, Broken, Event, Meta, Step
from degarble.trace.forward import ForwardJudge
from degarble.trace.geometry import MAX_BLOCK_SIZE
from degarble.trace.graph import GraphJudge
from degarble.trace.plain_decode import judge_events
from degarble.trace.pool import OpenStep
from degarble.trace.prefix import PrefixJudge
from degarble.trace.reader import Item
from degarble.trace.scale import ScaleJudge
from degarble.trace.settle import SettleJudge
from degarble.trace.state import State
from degarble.trace.tables import TableJudge
from degarble.trace.transfer import TransferJudge
from degarble.trace.violation import Journal, Violation

MAX_STEPS = 1024
"""Open steps that are followed; an engine has a handful in flight."""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What one or several files of a run were found to be."""

    violations: list[Violation]
    further: dict[str, int] = field(default_factory=dict)
    """Rule -> violations beyond those that are listed."""
    num_events: int = 0
    num_lines: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    """Unknown event -> counter of its first."""
    kinds: frozenset[str] = frozenset()
    """Events that occurred: what was there to be judged."""
    meta: Meta | None = None
    unjudged: dict[str, str] = field(default_factory=dict)

    @property
    def first(self) -> Violation | None:
        """The earliest violation that is no mere note."""
        real = [violation for violation in self.violations if not violation.is_info]
        return min(real, key=lambda violation: violation.line, default=None)


class Replay:
    """One pass over one file."""

    def __init__(self, *, file: str = "", rank: int | None = None, checks_counter: bool = True) -> None:
        self.journal = Journal()
        self.journal.file = file
        self.state = State(self.journal, rank)
        self.checks_counter = checks_counter
        self.num_events = 0
        self.num_lines = self.num_broken = 0
        self.unknown: OrderedDict[str, int] = OrderedDict()
        self.forward = ForwardJudge(self.state)
        self.settle = SettleJudge(self.state)
        self.scales = ScaleJudge(self.state)
        self._next = 0
        self._is_slack = False
        self._kinds: set[type] = set()
        tables, prefix = TableJudge(self.state), PrefixJudge(self.state)
        transfer, graph = TransferJudge(self.state), GraphJudge(self.state)
        self._handlers: dict[type, Callable[[Any], None]] = {
            event.Meta: self.on_meta,
            event.Req: tables.on_req,
            event.Alloc: tables.on_alloc,
            event.Ref: tables.on_ref,
            event.Free: tables.frees.on_free,
            event.Store: prefix.on_store,
            event.Hit: prefix.on_hit,
            event.Evict: prefix.on_evict,
            event.Step: self.on_step,
            event.Fwd: self.forward.on_fwd,
            event.Commit: self.settle.on_commit,
            event.Rollback: self.settle.on_rollback,
            event.Copy: self.settle.on_copy,
            event.Shift: self.settle.on_shift,
            event.State: self.settle.on_state,
            event.Xfer: transfer.on_xfer,
            event.Graph: graph.on_graph,
            event.Crc: transfer.on_crc,
            event.Scale: self.scales.on_scale,
        }

    def feed(self, items: list[Item]) -> None:
        """Judge a batch of events."""
        kinds = set(map(type, items))
        if items and not self._kinds and type(items[0]) is not Meta:
            self._first_is_meta(items[0].n)
        self._kinds |= kinds
        self.num_lines += len(items)
        if Broken in kinds:
            for item in items:
                if isinstance(item, Broken):
                    self._on_broken(item)
                else:
                    self._feed([item])
        else:
            self._feed(items)  # type: ignore[arg-type]

    def _feed(self, events: list[AnyEvent]) -> None:
        self._next = judge_events(events, self._next, self.state, self._handlers, self._on_gap)

    def _on_gap(self, event: Event, expected: int) -> None:
        """The counter has no gap; after a line without one, one number may be missing."""
        if (self._is_slack and event.n == expected + 1) or not self.checks_counter:
            self._is_slack = False
            return
        self._is_slack = False
        lost = event.n - expected
        self.journal.floor = max(self.journal.floor, event.n)
        what = f"{lost} events are missing before it" if lost > 0 else "it was there before, or lines changed places"
        self.state.fail(
            "KVC623",
            event,
            f"the counter goes from {expected - 1} to {event.n}: {what}",
            key="n",
            measured={"n": _short(event.n)},
            bound={"n": expected},
        )

    def _on_broken(self, broken: Broken) -> None:
        self.num_broken += 1
        if broken.has_counter:
            if broken.n != self._next and self.checks_counter:
                self._on_gap(Event(n=broken.n), self._next)
            self._next = broken.n + 1
        else:
            self._is_slack = True
        if broken.is_unknown:
            if len(self.unknown) < MAX_STEPS:
                self.unknown.setdefault(broken.ev, broken.n)
            return
        self.state.fail("KVC623", broken.n, f"line is no event: {broken.message}", key=f"line {broken.n}")

    def _first_is_meta(self, n: int) -> None:
        self.state.fail("KVC623", n, "the first line is no meta event: nothing says how large a block is", key="meta")

    def on_meta(self, meta: Meta) -> None:
        """The geometry. Raises TargetError for a schema this replay does not know."""
        if meta.schema is not None and (isinstance(meta.schema, bool) or meta.schema != SCHEMA):
            raise TargetError(f"trace schema {str(meta.schema)[:40]!r} is unknown: this version reads schema {SCHEMA}")
        if meta.schema is None:
            self.state.fail("KVC623", meta, "meta names no schema", key="schema")
        if self.state.meta is not None:
            self.state.fail("KVC623", meta, "a second meta line", key="meta")
            return
        for size in (meta.block_size, *(group.block_size for group in meta.groups or ())):
            if size is not None and not 0 < size <= MAX_BLOCK_SIZE:
                self.state.fail("KVC623", meta, f"block_size {_short(size)} is no size of a block", key="block_size")
                break
        self.state.set_meta(meta)
        MetaJudge(self.state).judge(meta)

    def on_step(self, event: Step) -> None:
        """An engine step begins or ends."""
        state = self.state
        if event.ph == "B":
            if event.step in state.steps:
                state.fail("KVC623", event, f"step {event.step} begins while it is open", key=f"step {event.step}")
                state.steps.pop(event.step).close()
            step = OpenStep(event.step, event.n, event.blocks)
            state.steps[event.step] = step
            state.step = step
            if len(state.steps) > MAX_STEPS:
                state.steps.pop(next(iter(state.steps))).close()
        elif event.ph == "E":
            ended = state.steps.pop(event.step, None)
            if ended is None:
                state.fail("KVC623", event, f"step {event.step} ends and was not open", key=f"step {event.step}")
                return
            ended.close()
            if state.step is ended:
                state.step = next(reversed(state.steps.values()), None)
        else:
            state.fail("KVC623", event, f"step {event.step} has the phase {event.ph[:20]!r}, not B or E", key="ph")

    def finish(self) -> Verdict:
        """The verdict after the last event."""
        self.scales.on_end()
        if not self._kinds:
            self._first_is_meta(0)
        unjudged = {}
        if self.state.meta is not None and any(not g.block_size for g in self.state.groups.values()):
            unjudged["slots and rows"] = "the meta line gives no block_size"
        return Verdict(
            violations=sorted(self.journal.violations, key=lambda v: v.line),
            further=dict(self.journal.further),
            num_events=self.num_lines - self.num_broken,
            num_lines=self.num_lines,
            unknown=dict(self.unknown),
            kinds=frozenset(name for name, kind in event.KINDS.items() if kind in self._kinds),
            meta=self.state.meta,
            unjudged=unjudged,
        )


def replay_items(batches: Iterable[list[Item]], *, file: str = "", rank: int | None = None) -> Verdict:
    """Judge the events of one file."""
    replay = Replay(file=file, rank=rank)
    for batch in batches:
        replay.feed(batch)
    return replay.finish()


def _short(number: int) -> int | str:
    return number if abs(number) < 1 << 53 else f"about 2^{number.bit_length() - 1}"

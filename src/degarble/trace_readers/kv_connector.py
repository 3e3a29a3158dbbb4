"""Observations of a vLLM KV connector: the trace schema, plus one event for what attention was given.

A connector sees requests and blocks in the scheduler, and in the worker, once a layer, the metadata of the whole batch: it
knows slots, block tables and lengths, and no forwards by request. So its file is a trace of schema 1 whose meta line
says `"observer": "kv-connector"`, with this event in place of `fwd`:

    {"ev": "attn", "n": …, "step": 7, "layer": "model.layers.0.self_attn.attn", "g": 0, "reqs": ["r1", "r2"],
     "starts": [0, 5, 6], "seq_lens": [5, 40], "slots": [128, …, 132, 807], "tables": [[1], [4, 9, 6]]}

`reqs` are in batch order, `starts` are query_start_loc, slots after starts[-1] are padding. Every layer may be written, or
the first of each group. A prefix hit is a `ref` of its blocks and a `commit` with `len` and no ids, since a connector sees no
hashes. The scheduler's and the worker's process may write a file each, joined by `step`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, ClassVar

import msgspec

from degarble.errors import TargetError
from degarble.trace.event import AnyEvent, Broken, Event, Fwd, Meta, Name, Req, Step
from degarble.trace.files import Counter
from degarble.trace.replay import Replay
from degarble.trace_readers.interface import ForeignVerdict, TraceReader
from degarble.trace_readers.lines import TooLong, read_lines, shown

OBSERVER = "kv-connector"
MAX_WAITING = 1024
"""Steps of the worker that may wait for the scheduler's."""
ROLE_LINES = 2000


class Attention(Event, tag="attn"):
    """What attention of one layer was given for a batch."""

    layer: str
    reqs: list[Name]
    starts: list[int]
    seq_lens: list[int]
    slots: list[int]
    tables: list[list[int]]
    step: Name | None = None


Item = AnyEvent | Attention | Broken
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyEvent | Attention)


class ConnectorReader(TraceReader):
    """Reads what an observing KV connector wrote."""

    name: ClassVar[str] = "kv-connector"
    title: ClassVar[str] = "Observations of a KV connector"
    judged: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *(
                "KVC601",
                "KVC602",
                "KVC603",
                "KVC604",
                "KVC605",
                "KVC606",
                "KVC612",
                "KVC614",
                "KVC615",
                "KVC616",
                "KVC617",
            ),
            *("KVC619", "KVC622", "KVC623", "KVC624", "KVC625", "KVC626", "KVC629", "KVC631"),
        ),
        "",
    )
    lacks: ClassVar[str] = (
        "they carry no position ids, hashes, captured graphs, context shifts, states or digests of bytes"
    )

    def recognises(self, head: bytes, path: str) -> bool:
        """By the observer in the meta line."""
        try:
            value = msgspec.json.decode(head.lstrip().split(b"\n", 1)[0])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
            return False
        return isinstance(value, dict) and value.get("ev") == "meta" and value.get("observer") == OBSERVER

    def read(self, path: str) -> ForeignVerdict:
        """One file of both roles."""
        return self._judge(path, PurePath(path).name, _items(path), None)

    def read_all(self, paths: Sequence[str]) -> ForeignVerdict:
        """One file, or the scheduler's and the worker's in any order."""
        if len(paths) != 2:
            return super().read_all(paths)
        first, second = sorted(paths, key=lambda path: not _is_scheduler(path))
        return self._judge(first, PurePath(first).name, _items(first), second)

    def _judge(self, path: str, name: str, items: Iterator[Item], worker: str | None) -> ForeignVerdict:
        replay = Replay(file=name, checks_counter=False)
        translation = _Translation(replay)
        counter = Counter(replay, name)
        waiting = None if worker is None else _Waiting(worker, replay)
        for item in items:
            counter.check(item)  # type: ignore[arg-type]
            translation.feed(item, name)
            if waiting is not None and isinstance(item, Step) and item.ph == "B":
                for event in waiting.of(item.step):
                    translation.feed(event, waiting.name)
        if waiting is not None:
            for event in waiting.rest():
                translation.feed(event, waiting.name)
        found = replay.finish()
        if not found.num_events:
            raise TargetError(f"{path}: no observations: none of its {found.num_lines} lines is an event")
        values = {field: getattr(found, field) for field in found.__dataclass_fields__}
        limits = self.limits() | found.unjudged
        if not translation.num_attention:
            limits["attention"] = "no attn event: nothing was seen of what is read and written"
        return ForeignVerdict(**values | {"unjudged": limits}, judged=frozenset(self.judged), why=self.why())


class _Translation:
    """Makes forwards of what attention was given, and judges what only a batch shows."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.num_attention = 0
        self._first: dict[int, Attention] = {}

    def feed(self, item: Item, file: str) -> None:
        """Judge one item; an attention counts once a group and step, further layers are compared with it."""
        self.replay.journal.file = file
        if not isinstance(item, Attention):
            self.replay.feed([item])
            return
        self.num_attention += 1
        first = self._first.get(item.g)
        if first is not None and first.step == item.step and first.layer != item.layer:
            self._compare(first, item)
            return
        self._first[item.g] = item
        problem = _problem(item)
        if problem:
            self.replay.feed([Broken(item.n, f"attn: {problem}", has_counter=True)])
            return
        self._padding(item)
        for index, name in enumerate(item.reqs):
            low, high = item.starts[index], item.starts[index + 1]
            if high > low:
                self.replay.feed([self._forward(item, name, index, item.slots[low:high])])

    def _forward(self, item: Attention, name: Name, index: int, slots: list[int]) -> Fwd:
        length = item.seq_lens[index]
        table = item.tables[index] if index < len(item.tables) else None
        sequence = self.replay.state.sequences.get(name)
        known = length if sequence is None or sequence.is_blind else len(sequence.values)
        size = self.replay.state.geometry(item.g).block_size
        return Fwd(
            n=item.n,
            g=item.g,
            req=name,
            pos=(length - len(slots), length),
            slots=slots,
            kv=length,
            tab=table[: -(-length // size)] if table is not None and size else None,
            draft=True if length > known and len(slots) > 1 else None,
        )

    def _padding(self, item: Attention) -> None:
        meta = self.replay.state.meta
        pad = -1 if meta is None else meta.pad_slot
        for slot in item.slots[item.starts[-1] :]:
            if slot != pad:
                message = f"a padding row of step {item.step} writes slot {slot}, padding writes {pad} only"
                self.replay.state.fail("KVC603", item.n, message, slot=slot, key="padding")
                return

    def _compare(self, first: Attention, item: Attention) -> None:
        for what in ("slots", "seq_lens", "tables", "starts"):
            if getattr(first, what) != getattr(item, what):
                message = f"{item.layer[:80]} is given other {what} than {first.layer[:80]} in step {item.step}"
                self.replay.state.fail("KVC602", item.n, message, key=f"{what} of {item.layer[:80]}")
                return


class _Waiting:
    """The worker's observations by step."""

    def __init__(self, path: str, replay: Replay) -> None:
        self.name = PurePath(path).name
        self._counter = Counter(replay, self.name)
        self._items = _items(path)
        self._held: dict[Name | None, list[Item]] = {}

    def _next(self) -> Item | None:
        for item in self._items:
            self._counter.check(item)  # type: ignore[arg-type]
            if not isinstance(item, Meta | Step):
                return item
        return None

    def of(self, step: Name | None) -> list[Item]:
        """Everything of one step; what is of later ones is kept."""
        while len(self._held) < MAX_WAITING and (item := self._next()) is not None:
            own = item.step if isinstance(item, Attention) else step
            self._held.setdefault(own, []).append(item)
            if own != step:
                break
        return self._held.pop(step, [])

    def rest(self) -> Iterator[Item]:
        """What no step of the scheduler asked for."""
        for items in self._held.values():
            yield from items
        while (item := self._next()) is not None:
            yield item


def _problem(item: Attention) -> str:
    """What is wrong with the sizes of a batch; '' if nothing."""
    count = len(item.reqs)
    if len(item.starts) != count + 1 or len(item.seq_lens) < count:
        return f"{count} requests, {len(item.starts)} starts and {len(item.seq_lens)} lengths"
    if item.starts[0] != 0 or any(b < a for a, b in zip(item.starts, item.starts[1:], strict=False)):
        return f"starts {item.starts[:8]} are no growing row from 0"
    if item.starts[-1] > len(item.slots):
        return f"{item.starts[-1]} tokens and {len(item.slots)} slots"
    return ""


def _is_scheduler(path: str) -> bool:
    for number, item in enumerate(_items(path)):
        if isinstance(item, Req):
            return True
        if number > ROLE_LINES:
            break
    return False


def _items(path: str) -> Iterator[Item]:
    for number, line in read_lines(path):
        if isinstance(line, TooLong):
            yield Broken(number, f"a line of more than {line.num_bytes_at_least} bytes", has_counter=False)
        elif line.strip():
            yield _item(line, number)


def _item(line: bytes, number: int) -> Item:
    try:
        item: Item = _decoder.decode(line)
        return item
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        problem = str(error)[:160]
    try:
        value = msgspec.json.decode(line)
        n, ev = value["n"], value["ev"]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, LookupError, TypeError):
        return Broken(number, f"no event: {shown(line)} ({problem})", has_counter=False)
    if type(n) is not int or not isinstance(ev, str):
        return Broken(number, f"no event: {shown(line)}", has_counter=False)
    is_unknown = "Invalid value" in problem and "$.ev" in problem
    return Broken(n, f"{ev[:40]}: {problem}", has_counter=True, is_unknown=is_unknown, ev=ev[:80])

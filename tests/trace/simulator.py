"""A small reference engine that writes legal traces of random schedules: the oracle of healthy in the tests of the trace.

It shares no code with the verifier. Everything it does is legal by the semantics of the schema: chunked prefill, decode,
drafts with rollbacks, prefix hits and evictions, forks with copy-on-write, sliding windows, preemption (recompute or
offload and load), asynchronous steps, graph replays, recurrent states, position offsets, context-parallel ranks.
"""

from __future__ import annotations

import hashlib
import random
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

Fields = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the engine can do in one run."""

    block_size: int = 16
    num_blocks: int = 64
    null_block: int | None = 0
    window: int | None = None
    has_prefix_cache: bool = True
    has_drafts: bool = False
    has_forks: bool = False
    is_async: bool = False
    has_graphs: bool = False
    has_states: bool = False
    has_offload: bool = False
    has_offsets: bool = False
    has_namespaces: bool = True
    cp: int = 1
    rank: int = 0
    interleave: int = 1
    chunk: int = 40


@dataclass
class Request:
    """One request of the simulated engine."""

    name: str
    ids: list[int]
    ns: Fields
    offset: int
    valid: int = 0
    table: list[int] = field(default_factory=list)
    stored: int = 0
    is_waiting: bool = False
    keys: list[str] = field(default_factory=list)
    until: int = 0
    idx: int = 0


class Simulator:
    """Writes one trace."""

    def __init__(self, seed: int, options: Options) -> None:
        self.rng = random.Random(seed)
        self.o = options
        self.events: list[Fields] = []
        self.free = [b for b in range(options.num_blocks) if b != options.null_block]
        self.rc = dict.fromkeys(range(options.num_blocks), 0)
        self.map: dict[str, list[int]] = {}
        self.hash_of: dict[int, str] = {}
        self.cached: OrderedDict[int, None] = OrderedDict()
        self.live: list[Request] = []
        self.flying: list[tuple[int, list[tuple[Request, int, int, bool]]]] = []
        self.number = self.step = self.transfers = 0
        self.null = -1 if options.null_block is None else options.null_block
        self.prompts = [[self.rng.randrange(50_000) for _ in range(130)] for _ in range(3)]

    @property
    def span(self) -> int:
        """Positions of one column."""
        return self.o.block_size * self.o.cp

    def emit(self, ev: str, **fields: Any) -> None:
        self.events.append({"n": len(self.events), "ev": ev, **{k: v for k, v in fields.items() if v is not None}})

    def run(self, num_events: int) -> list[Fields]:
        """Steps until so many events are there."""
        self.meta()
        while len(self.events) < num_events:
            self.arrive()
            self.one_step()
        while self.flying:
            self.end_step()
        return self.events

    def meta(self) -> None:
        o = self.o
        heads, dim = 4, 64
        shape = [o.num_blocks, o.block_size, heads, dim]
        group = {
            "g": 0,
            "kind": "full" if o.window is None else "window",
            "layers": [0, 1, 2, 3],
            "owner": [0, 1, 2, 3],
            "block_size": o.block_size,
            "num_blocks": o.num_blocks,
            "axes": ["num_blocks", "block_size", "num_kv_heads", "head_dim"],
            "shape": shape,
            "strides": [o.block_size * heads * dim, heads * dim, dim, 1],
            "itemsize": 2,
            "parts": ["k", "v"],
            "index_bits": 64,
        }
        if o.window is not None:
            group["window"] = o.window
        self.emit(
            "meta",
            schema=1,
            engine="reference",
            layers=4,
            num_heads=16,
            num_kv_heads=heads,
            head_dim=dim,
            block_size=o.block_size,
            num_blocks=o.num_blocks,
            null_block=o.null_block,
            pad_slot=-1,
            window=o.window,
            groups=[group],
            tp=1,
            cp=o.cp,
            interleave=o.interleave,
            rank=o.rank if o.cp > 1 else None,
        )
        if o.has_graphs:
            for size in (1, 2, 4, 8, 16):
                self.emit("graph", **self.graph("capture", size, size))

    def graph(self, op: str, real: int, size: int) -> Fields:
        return {
            "op": op,
            "id": f"d{size}",
            "ptr": {"slots": 1 << 40 | size << 12, "tables": 1 << 41 | size << 12},
            "const": {"max_blocks": 64, "batch": size},
            "real": real,
            "padded": size,
            "pad_slots": [-1] * (size - real),
        }

    # requests

    def arrive(self) -> None:
        if len(self.live) >= 6 or self.rng.random() > 0.5:
            return
        self.number += 1
        prompt = list(self.rng.choice(self.prompts)[: self.rng.choice((0, 16, 24, 48, 64, 100))])
        prompt += [self.rng.randrange(50_000) for _ in range(self.rng.choice((0, 1, 3, 20, 33)))] or [7]
        if self.rng.random() < 0.2:
            prompt = self.prompts[0][: 2 * self.o.block_size]
        prompt = prompt or [1]
        ns: Fields = {}
        if self.o.has_namespaces and self.rng.random() < 0.3:
            ns = self.rng.choice(({"lora": "a"}, {"salt": "a"}, {"mm": "img:1", "lora": "b"}))
        offset = self.rng.choice((-12, 7)) if self.o.has_offsets and self.rng.random() < 0.5 else 0
        request = Request(f"r{self.number}", prompt, ns, offset)
        request.until = len(prompt) + self.rng.randrange(1, 40)
        request.idx = self.number
        self.live.append(request)
        self.emit("req", req=request.name, op="new", ids=list(prompt), ns=ns, rope_offset=offset or None)
        self.take_prefix(request)

    def hashes(self, request: Request, count: int) -> list[str]:
        parent, found = "", []
        size = self.o.block_size
        for column in range(count):
            text = repr((parent, request.ids[column * size : (column + 1) * size], sorted(request.ns.items())))
            parent = hashlib.sha256(text.encode()).hexdigest()[:16]
            found.append(parent)
        return found

    def take_prefix(self, request: Request) -> None:
        if not self.o.has_prefix_cache or request.table:
            return
        size = self.o.block_size
        is_full = self.rng.random() < 0.5
        names = self.hashes(request, (len(request.ids) if is_full else len(request.ids) - 1) // size)
        taken: list[int] = []
        for name in names:
            if not self.map.get(name):
                break
            taken.append(self.map[name][-1])
        if not taken:
            return
        tokens = min(len(taken) * size, len(request.ids) - 1)
        self.emit("hit", req=request.name, h=names[: len(taken)], parent=None, b=taken, ns=request.ns, tok=tokens)
        for block in taken:
            self.rc[block] += 1
            self.cached.pop(block, None)
        self.emit("ref", req=request.name, b=taken, at=0, rc=[self.rc[b] for b in taken])
        request.table = list(taken)
        request.valid = tokens
        request.stored = len(taken)

    def new_block(self) -> int | None:
        busy = {b for _, work in self.flying for r, *_ in work for b in r.table}
        if self.free and self.rng.random() < 0.8:
            return self.free.pop(self.rng.randrange(len(self.free)))
        for block in self.cached:
            if block in busy:
                continue
            del self.cached[block]
            self.evict(block)
            return block
        return self.free.pop() if self.free else None

    def evict(self, block: int) -> None:
        name = self.hash_of.pop(block)
        self.map[name].remove(block)
        self.emit("evict", h=[name], b=[block])

    def allocate(self, request: Request, column: int) -> bool:
        block = self.new_block()
        if block is None:
            return False
        self.rc[block] = 1
        at = column if column != len(request.table) or self.rng.random() < 0.3 else None
        self.emit("alloc", req=request.name, b=[block], at=at, rc=[1])
        if column == len(request.table):
            request.table.append(block)
        else:
            request.table[column] = block
        return True

    def release(self, block: int) -> int:
        self.rc[block] -= 1
        if self.rc[block] == 0:
            if block in self.hash_of:
                self.cached[block] = None
            else:
                self.free.append(block)
        return self.rc[block]

    def free_all(self, request: Request) -> None:
        blocks = [block for block in reversed(request.table) if block != self.null]
        if blocks:
            self.emit("free", req=request.name, b=blocks, rc=[self.release(block) for block in blocks])
        request.table = []
        request.valid = request.stored = 0

    def preempt(self, request: Request) -> None:
        if self.o.has_offload and request.stored and self.o.window is None:
            request.keys = []
            for column in range(request.stored):
                self.transfers += 1
                key = f"{request.name}:{column}:{self.transfers}"
                part = {"id": f"x{self.transfers}", "dir": "store", "b": [request.table[column]], "key": key}
                self.emit("xfer", **part, ph="B", parts=["k", "v"], layers=[0, 1, 2, 3], after_step=self.step)
                self.emit("xfer", **part, ph="E", crc_src=key, crc_dst=key)
                request.keys.append(key)
        self.free_all(request)
        request.is_waiting = True
        self.emit("req", req=request.name, op="preempt")

    def resume(self, request: Request) -> None:
        request.is_waiting = False
        self.emit("req", req=request.name, op="resume")
        usable = min(len(request.keys), (len(request.ids) - 1) // self.o.block_size)
        if usable and len(self.free) + len(self.cached) > usable + 8:
            for column in range(usable):
                if not self.allocate(request, column):
                    return
                self.transfers += 1
                part = {
                    "id": f"x{self.transfers}",
                    "dir": "load",
                    "b": [request.table[column]],
                    "key": request.keys[column],
                }
                self.emit("xfer", **part, ph="B")
                self.emit("xfer", **part, ph="E", crc_src=request.keys[column], crc_dst=request.keys[column])
            request.valid = usable * self.o.block_size
            self.emit("commit", req=request.name, len=request.valid)
        else:
            self.take_prefix(request)
        request.keys = []

    def fork(self, parent: Request) -> None:
        self.number += 1
        child = Request(f"r{self.number}", list(parent.ids), parent.ns, parent.offset)
        child.until, child.idx = parent.until + 5, self.number
        self.emit("req", req=child.name, op="fork", parent=parent.name, ids=list(child.ids), ns=child.ns)
        for block in parent.table:
            self.rc[block] += 1
        self.emit("ref", req=child.name, b=list(parent.table), at=0, rc=[self.rc[b] for b in parent.table])
        child.table, child.valid, child.stored = list(parent.table), parent.valid, parent.stored
        self.live.append(child)

    # steps

    def flying_requests(self) -> set[str]:
        return {request.name for _, work in self.flying for request, *_ in work}

    def one_step(self) -> None:
        busy = self.flying_requests()
        if self.o.is_async and len(self.flying) > 1:
            self.end_step()
            busy = self.flying_requests()
        idle = [request for request in self.live if request.name not in busy]
        for request in idle:
            if request.is_waiting and self.rng.random() < 0.4:
                self.resume(request)
        if self.o.has_forks and self.o.window is None and self.rng.random() < 0.1 and len(self.live) < 8:
            grown = [r for r in idle if r.valid == len(r.ids) - 1 and r.table and not r.is_waiting]
            if grown:
                self.fork(self.rng.choice(grown))
        idle = [request for request in self.live if request.name not in busy and not request.is_waiting]
        chosen = [request for request in idle if self.rng.random() < 0.7]
        work = [item for request in chosen if (item := self.schedule(request)) is not None]
        work = [item for item in work if not item[0].is_waiting]
        if work:
            self.launch(work)
        if self.flying and not (self.o.is_async and work):
            self.end_step()
        elif not work and len(self.live) > 1 and self.rng.random() < 0.3:
            victim = self.rng.choice([r for r in self.live if r.name not in self.flying_requests()] or [self.live[0]])
            if victim.table and not victim.is_waiting and victim.name not in self.flying_requests():
                self.preempt(victim)

    def schedule(self, request: Request) -> tuple[Request, int, int, bool] | None:
        low, known = request.valid, len(request.ids)
        is_draft = False
        if known - low > 1:
            high = min(known, low + self.rng.randrange(1, self.o.chunk))
        else:
            high = low + 1
            if self.o.has_drafts and self.rng.random() < 0.7:
                high += self.rng.randrange(1, 5)
                is_draft = True
        size = self.span
        for column in range(low // size, -(-high // size)):
            if column >= len(request.table):
                if not self.allocate(request, column):
                    self.make_room(request)
                    return None
                continue
            is_shared = self.rc[request.table[column]] > 1 or request.table[column] in self.hash_of
            if is_shared and not self.copy_on_write(request, column, low):
                self.make_room(request)
                return None
        return request, low, high, is_draft

    def copy_on_write(self, request: Request, column: int, low: int) -> bool:
        if not self.free and not self.cached:
            return False
        old = request.table[column]
        self.emit("free", req=request.name, b=[old], at=column, rc=[self.release(old)])
        request.table[column] = self.null
        was_cached = self.cached.pop(old, 0) is None  # the source is not its own destination
        is_done = self.allocate(request, column)
        if was_cached:
            self.cached[old] = None
        if not is_done:
            request.table.pop()
            self.free_all(request)
            request.is_waiting = True
            self.emit("req", req=request.name, op="preempt")
            return False
        rows = low - column * self.span
        if rows > 0:
            self.emit(
                "copy",
                src=old,
                dst=request.table[column],
                rows=[0, rows],
                layers=[0, 1, 2, 3],
                parts=["k", "v"],
                req=request.name,
            )
        request.stored = min(request.stored, column)
        return True

    def make_room(self, request: Request) -> None:
        busy = self.flying_requests()
        if request.table and request.name not in busy and not request.is_waiting:
            self.preempt(request)

    def slots(self, request: Request, low: int, high: int) -> list[int]:
        o = self.o
        found = []
        for p in range(low, high):
            block = request.table[p // self.span]
            rest = p % self.span
            if o.cp > 1 and (rest // o.interleave) % o.cp != o.rank:
                found.append(-1)
                continue
            row = (rest // (o.cp * o.interleave)) * o.interleave + rest % o.interleave
            found.append(block * o.block_size + row)
        return found

    def launch(self, work: list[tuple[Request, int, int, bool]]) -> None:
        self.step += 1
        blocks = sorted({b for request, *_ in work for b in request.table if b != self.null})
        self.emit("step", step=self.step, ph="B", blocks=blocks)
        if self.o.has_graphs and all(high - low == 1 for _, low, high, _ in work):
            size = next(size for size in (1, 2, 4, 8, 16) if size >= len(work))
            self.emit("graph", **self.graph("replay", len(work), size))
        for request, low, high, is_draft in work:
            if self.o.has_states:
                self.emit("state", req=request.name, idx=request.idx, valid_at=low, init=low == 0)
            rope = list(range(low + request.offset, high + request.offset)) if request.offset else None
            tab = list(request.table) if self.rng.random() < 0.2 else None
            slots = self.slots(request, low, high)
            self.emit(
                "fwd",
                req=request.name,
                pos=[low, high],
                rope=rope,
                slots=slots,
                kv=high,
                tab=tab,
                draft=is_draft or None,
            )
        self.flying.append((self.step, work))

    def end_step(self) -> None:
        step, work = self.flying.pop(0)
        self.emit("step", step=step, ph="E")
        for request, low, high, is_draft in work:
            self.settle(request, low, high, is_draft)

    def settle(self, request: Request, low: int, high: int, is_draft: bool) -> None:
        known = len(request.ids)
        if high < known:
            request.valid = high
        elif is_draft:
            accepted = self.rng.randrange(1, high - low + 1)
            new = [self.rng.randrange(50_000) for _ in range(accepted)]
            request.ids += new
            request.valid = known + accepted - 1
            kind = "commit" if accepted == high - low else "rollback"
            self.emit(kind, req=request.name, len=request.valid, at=known, ids=new)
        else:
            request.ids.append(self.rng.randrange(50_000))
            request.valid = high
            self.emit("commit", req=request.name, len=high, at=known, ids=request.ids[-1:])
        self.store(request)
        self.slide(request)
        if len(request.ids) >= request.until:
            self.free_all(request)
            self.emit("req", req=request.name, op=self.rng.choice(("finish", "finish", "abort")))
            self.live.remove(request)

    def store(self, request: Request) -> None:
        if not self.o.has_prefix_cache:
            return
        size = self.o.block_size
        full = request.valid // size
        begin = request.stored
        fresh = [
            c for c in range(begin, full) if request.table[c] != self.null and request.table[c] not in self.hash_of
        ]
        if fresh and fresh == list(range(begin, full)):
            names = self.hashes(request, full)
            parent = names[begin - 1] if begin else None
            ids = request.ids[begin * size : full * size]
            blocks = request.table[begin:full]
            self.emit("store", h=names[begin:full], parent=parent, b=blocks, ids=ids, ns=request.ns)
            for name, block in zip(names[begin:full], blocks, strict=True):
                self.map.setdefault(name, []).append(block)
                self.hash_of[block] = name
        request.stored = max(begin, full)

    def slide(self, request: Request) -> None:
        if self.o.window is None:
            return
        last = max(0, request.valid - self.o.window + 1) // self.span
        columns = [c for c in range(min(last, len(request.table))) if request.table[c] != self.null]
        if not columns or self.rng.random() < 0.3:
            return
        blocks = [request.table[c] for c in columns]
        self.emit("free", req=request.name, b=blocks, at=columns[0], rc=[self.release(b) for b in blocks])
        for column in columns:
            request.table[column] = self.null


FLAVOURS: dict[str, Options] = {
    "plain": Options(),
    "odd-size": Options(block_size=24, num_blocks=40),
    "one-row": Options(block_size=1, num_blocks=400, chunk=9),
    "tight": Options(num_blocks=18),
    "window": Options(window=40, has_prefix_cache=False),
    "window-stored": Options(window=33, null_block=None),
    "drafts": Options(has_drafts=True),
    "forks": Options(has_forks=True, has_drafts=True, num_blocks=80),
    "async": Options(is_async=True, num_blocks=40),
    "graphs": Options(has_graphs=True, is_async=True),
    "states": Options(has_states=True, has_prefix_cache=False),
    "offload": Options(has_offload=True, num_blocks=24),
    "offsets": Options(has_offsets=True, has_drafts=True, has_forks=True),
    "everything": Options(
        has_drafts=True,
        has_forks=True,
        is_async=True,
        has_graphs=True,
        has_offload=True,
        has_offsets=True,
        num_blocks=48,
    ),
    "rank-0-of-2": Options(cp=2, rank=0, has_prefix_cache=False),
    "rank-2-of-4": Options(cp=4, rank=2, interleave=2, block_size=8, has_prefix_cache=False),
}
"""By name."""


def trace_of(flavour: str, seed: int, num_events: int = 300) -> list[Fields]:
    """One legal trace."""
    return Simulator(seed, FLAVOURS[flavour]).run(num_events)

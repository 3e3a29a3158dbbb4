"""One struct per event of trace schema 1 (a contract: the table of events, and what is required of each).

Decoding is the larger half of a replay's time, so every event is one tagged struct that msgspec fills in C. Fields the
schema does not name are skipped. Required are only the fields that the schema's seventh sentence lists.
"""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA = 1
Name = str | int
"""Requests, hashes, graphs and transfers are named by text or by a number."""
Span = tuple[int, int]
"""Half-open [lo, hi)."""
Namespace = dict[str, Any] | str | None


class Event(msgspec.Struct, tag_field="ev", kw_only=True, gc=False, omit_defaults=True):
    """What every line has: its place in the counter of its writer, and its cache group."""

    n: int
    g: int = 0


class Group(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One cache group of the meta line: layers that share a block table, and how their tensor lies in memory."""

    g: int = 0
    kind: str = "full"
    layers: list[int] | None = None
    owner: list[int] | None = None
    block_size: int | None = None
    kernel_block_size: int | None = None
    num_blocks: int | None = None
    window: int | None = None
    layout: str | None = None
    axes: list[str] | None = None
    shape: list[int] | None = None
    strides: list[int] | None = None
    stride_order: list[int] | None = None
    offset: int = 0
    itemsize: int | None = None
    parts: list[str] | None = None
    index_bits: int = 32


class Meta(Event, tag="meta"):
    """The first line: model, pool, groups, hash and parallel degrees."""

    schema: Any = None
    engine: str | None = None
    version: Any = None
    model: str | None = None
    layers: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    dtype: str | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    null_block: int | None = None
    pad_slot: int = -1
    window: int | None = None
    groups: list[Group] | None = None
    hash: dict[str, Any] | None = None
    tp: int = 1
    pp: int = 1
    cp: int = 1
    interleave: int = 1
    rank: int | None = None


class Req(Event, tag="req"):
    """A request changes its state: new, preempt, resume, finish, abort, fork."""

    req: Name
    op: str
    ids: list[int] | None = None
    ns: Namespace = None
    parent: Name | None = None
    rope_offset: int | None = None


class TableChange(Event):
    """What alloc, ref and free have in common: blocks at columns, and the engine's counts afterwards."""

    req: Name
    b: list[int]
    at: int | None = None
    rc: list[int] | None = None


class Alloc(TableChange, tag="alloc"):
    """Blocks from the free list enter a table."""


class Ref(TableChange, tag="ref"):
    """Blocks that live elsewhere (prefix, fork) enter a table."""


class Free(TableChange, tag="free"):
    """Blocks leave a table."""


class Store(Event, tag="store"):
    """Full blocks are published under their chained hashes."""

    h: list[Name]
    b: list[int]
    parent: Name | None = None
    ids: list[int] | None = None
    ns: Namespace = None


class Hit(Event, tag="hit"):
    """A request takes published blocks, and `tok` tokens with them."""

    req: Name
    h: list[Name]
    b: list[int]
    tok: int | None = None
    parent: Name | None = None
    ns: Namespace = None


class Evict(Event, tag="evict"):
    """Entries leave the prefix map."""

    h: list[Name]
    b: list[int]


class Step(Event, tag="step"):
    """An engine step begins (B) or ends (E)."""

    ph: str
    step: Name | None = None
    blocks: list[int] | None = None


class Fwd(Event, tag="fwd"):
    """The tokens [lo, hi) of one request go through the model: K and V are written to `slots`, [0, kv) is read."""

    req: Name
    pos: Span
    slots: list[int]
    kv: int
    rope: list[int] | None = None
    tab: list[int] | None = None
    draft: bool | None = None


class Commit(Event, tag="commit"):
    """Tokens are accepted; `len` rows are valid afterwards."""

    req: Name
    len: int | None = None
    at: int | None = None
    ids: list[int] | None = None


class Rollback(Commit, tag="rollback"):
    """A commit after which some drafts are rejected."""


class Copy(Event, tag="copy"):
    """Rows of one block are copied into another (copy-on-write)."""

    src: int
    dst: int
    rows: Span | None = None
    layers: list[int] | None = None
    parts: list[str] | None = None
    req: Name | None = None


class Shift(Event, tag="shift"):
    """Positions of cached keys move by `delta`; `applied` is the rotation that was applied with it."""

    req: Name
    range: Span | None = None
    delta: int | None = None
    applied: Any = None


class State(Event, tag="state"):
    """The recurrent state that the next forward of a request starts from."""

    req: Name
    idx: int | None = None
    valid_at: int | None = None
    init: bool | None = None


class Xfer(Event, tag="xfer"):
    """Bytes of blocks travel: store, load, send, recv, swap."""

    id: Name
    ph: str
    b: list[int]
    dir: str | None = None
    key: Name | None = None
    parts: list[str] | None = None
    layers: list[int] | None = None
    crc_src: Name | None = None
    crc_dst: Name | None = None
    after_step: Name | None = None


class Graph(Event, tag="graph"):
    """A device graph is captured, replayed or dropped."""

    op: str
    id: Name
    ptr: dict[str, Name] | None = None
    const: dict[str, Any] | None = None
    real: int | None = None
    padded: int | None = None
    pad_slots: list[int] | None = None


class Crc(Event, tag="crc"):
    """Digest of one slot at a write, read or load."""

    slot: int
    crc: Name
    layer: int | None = None
    part: str | None = None
    at: str | None = None


class Scale(Event, tag="scale"):
    """A scale of the quantised cache, and the side it is used on."""

    layer: int | None = None
    part: str | None = None
    value: Any = None
    shape: Any = None
    src: str | None = None
    used_on: list[str] | None = None


AnyEvent = (
    Meta
    | Req
    | Alloc
    | Ref
    | Free
    | Store
    | Hit
    | Evict
    | Step
    | Fwd
    | Commit
    | Rollback
    | Copy
    | Shift
    | State
    | Xfer
    | Graph
    | Crc
    | Scale
)
KINDS: dict[str, type[Event]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        *(Meta, Req, Alloc, Ref, Free, Store, Hit, Evict, Step, Fwd, Commit),
        *(Rollback, Copy, Shift, State, Xfer, Graph, Crc, Scale),
    )
}
"""By the text of `ev`."""


class Broken(msgspec.Struct, gc=False):
    """A line that is no event of the schema; `n` is the line's own, or its 0-based number in the file."""

    n: int
    message: str
    has_counter: bool
    is_unknown: bool = False
    """An object with its counter, whose `ev` the schema does not know: legal, and said once."""
    ev: str = ""

"""Boundaries of requests that a trace shows: read in a second pass, only for requests with a violation, only up to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from degarble.kvcache.boundary import Boundaries, fingerprint
from degarble.trace.event import Commit, Fwd, Group, Hit, Meta, Req, Rollback
from degarble.trace.reader import read_items
from degarble.trace.replay import Verdict
from degarble.trace.violation import Violation

MAX_REQUESTS = 64
"""Requests whose boundaries are collected."""
MAX_EDGES = 4096
BY_DEFINITION = frozenset({"KVC616", "KVC625", "KVC626"})
"""Their positions are ends of forwards, accepted prefixes or prompts, so that lying there says nothing."""


@dataclass(slots=True)
class _Seen:
    """What one request did so far."""

    num_tokens: int = 0
    edges: dict[int, None] = field(default_factory=dict)
    rejections: dict[int, None] = field(default_factory=dict)
    prefix: int | None = None

    def note(self, edges: dict[int, None], position: int) -> None:
        """Keep an edge, the latest of them."""
        edges.pop(position, None)
        edges[position] = None
        if len(edges) > MAX_EDGES:
            del edges[next(iter(edges))]


def with_boundaries(verdict: Verdict, paths: Sequence[str]) -> Verdict:
    """The verdict, its violations with the boundaries that their positions lie on."""
    wanted = [
        violation
        for violation in verdict.violations
        if violation.position and violation.request is not None and violation.rule not in BY_DEFINITION
    ]
    if not wanted:
        return verdict
    told: dict[int, Violation] = {}
    for path in paths:
        name = PurePath(path).name
        own = [violation for violation in wanted if violation.file in (name, "")][:MAX_REQUESTS]
        if own:
            told |= _told(path, own)
    verdict.violations = [told.get(id(violation), violation) for violation in verdict.violations]
    return verdict


def _told(path: str, wanted: Sequence[Violation]) -> dict[int, Violation]:
    """Each violation by its identity, with its sentence."""
    waiting = sorted(wanted, key=lambda violation: violation.line)
    requests = {str(violation.request): _Seen() for violation in waiting}
    meta: Meta | None = None
    found: dict[int, Violation] = {}
    for batch in read_items(path):
        for item in batch:
            while waiting and item.n > waiting[0].line:
                violation = waiting.pop(0)
                found[id(violation)] = _marked(violation, meta, requests[str(violation.request)])
            if not waiting:
                return found
            if isinstance(item, Meta):
                meta = item
            elif isinstance(item, Fwd | Req | Hit | Commit) and str(item.req) in requests:
                _note(requests, item)
    return found | {id(one): _marked(one, meta, requests[str(one.request)]) for one in waiting}


def _note(requests: dict[str, _Seen], item: Fwd | Req | Hit | Commit) -> None:
    name = str(item.req)
    seen = requests[name]
    if isinstance(item, Req):
        if item.op in ("new", "fork"):
            seen = requests[name] = _Seen(num_tokens=len(item.ids or ()))
    elif isinstance(item, Hit):
        seen.prefix = item.tok
    elif isinstance(item, Fwd):
        low, high = item.pos
        seen.num_tokens = max(seen.num_tokens, high)
        if high - low > 1 and not item.draft:
            seen.note(seen.edges, low)
            seen.note(seen.edges, high)
    elif isinstance(item, Rollback) and item.len is not None:
        seen.note(seen.rejections, item.len)


def _marked(violation: Violation, meta: Meta | None, seen: _Seen) -> Violation:
    assert violation.position is not None
    known = replace(
        of_pool(meta),
        num_tokens=max(seen.num_tokens, violation.position + 1),
        chunk_edges=tuple(seen.edges),
        prefix=seen.prefix,
        rejections=tuple(seen.rejections),
    )
    return replace(violation, boundary=fingerprint(violation.position, known, violation.block).told())


def of_pool(meta: Meta | None) -> Boundaries:
    """What the meta line says of blocks, windows and strides; of several groups, all sizes are tried."""
    if meta is None:
        return Boundaries()
    groups = meta.groups or [Group()]
    sizes = [size for group in groups for size in (group.block_size or meta.block_size, group.kernel_block_size)]
    windows = [group.window or meta.window for group in groups if group.kind in ("window", "chunked")]
    strides = [stride for group in groups for stride in _strides(group)]
    return Boundaries(
        block_sizes=_positive(sizes),
        windows=_positive(windows),
        block_strides=tuple(dict.fromkeys(strides)),
        num_blocks=max((group.num_blocks or meta.num_blocks or 0 for group in groups), default=0) or None,
    )


def _strides(group: Group) -> list[tuple[str, int]]:
    """Stride of a block in elements and bytes, where a kernel's index has 32 bits."""
    axes, strides = group.axes or (), group.strides or ()
    if group.index_bits > 32 or "num_blocks" not in axes or len(axes) != len(strides):
        return []
    stride = strides[list(axes).index("num_blocks")]
    return [("elements", stride), *([("bytes", stride * group.itemsize)] if group.itemsize else [])]


def _positive(sizes: Iterable[int | None]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(size for size in sizes if size is not None and size > 0))

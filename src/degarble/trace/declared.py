"""What can be judged before the first token: layouts, head maps, index reach and latent records of the meta line.

The keys of a meta line are those of a KV declaration, so it is turned into one, and `kvcache/judge.py` judges both. Only
KVC601 has a way of its own: a declaration must tell every size of its layout, of a trace's first line the sizes that
are told are compared. Which orders the strides may have is said by `kvcache/stored_order.py` for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.errors import LayoutMismatch
from degarble.kvcache import judge
from degarble.kvcache.contract import Violation
from degarble.kvcache.declaration import GroupDeclaration, KVDeclaration
from degarble.kvcache.stored_order import StoredOrder, stored_orders
from degarble.kvcache.told_sizes import CACHED_HEADS, wrong_extent, wrong_stride
from degarble.trace.event import Group, Meta
from degarble.trace.state import State


class MetaJudge:
    """Judges the meta line; every finding is at its counter."""

    def __init__(self, state: State) -> None:
        self.state = state

    def judge(self, meta: Meta) -> None:
        """Heads of the model, then all rules, group by group."""
        declaration = declaration_of(meta)
        if any(group.kind in CACHED_HEADS for group in declaration.groups):
            for violation in judge.head_violations(declaration):
                self._fail(meta, violation, "", "meta")
        for group in declaration.groups:
            for violation in _of_group(declaration, group):
                self._fail(meta, violation, f"group {group.g} ({group.kind}): ", f"groups.{group.g}")

    def _fail(self, meta: Meta, violation: Violation, prefix: str, key: str) -> None:
        self.state.fail(
            violation.rule,
            meta,
            prefix + violation.message,
            key=key,
            measured=_small(violation.measured),
            bound=_small(violation.bound),
            block=violation.block,
            layer=violation.layer,
            is_info=violation.rule == "KVC612",
        )


def declaration_of(meta: Meta) -> KVDeclaration:
    """The meta line as a declaration. Its numbers may be any: a trace is judged, not refused."""
    return KVDeclaration(
        num_heads=meta.num_heads,
        num_kv_heads=meta.num_kv_heads,
        head_dim=meta.head_dim,
        kv_lora_rank=meta.kv_lora_rank,
        qk_rope_head_dim=meta.qk_rope_head_dim,
        block_size=meta.block_size,
        num_blocks=meta.num_blocks,
        groups=[_group(group) for group in meta.groups or [Group()]],
        tp=meta.tp,
    )


def _group(group: Group) -> GroupDeclaration:
    return GroupDeclaration(
        g=group.g,
        kind=group.kind,
        layers=group.layers or [],
        owner=group.owner if group.layers is not None else None,
        block_size=group.block_size,
        num_blocks=group.num_blocks,
        kernel_block_size=group.kernel_block_size,
        axes=group.axes,
        layout=group.layout,
        shape=group.shape,
        strides=group.strides,
        stride_order=group.stride_order,
        offset=group.offset,
        itemsize=group.itemsize,
        parts=group.parts or [],
        index_bits=group.index_bits if group.index_bits >= 8 else 32,
    )


def _of_group(declaration: KVDeclaration, group: GroupDeclaration) -> Iterator[Violation]:
    yield from judge.owner_violations(declaration, group)
    yield from judge.kernel_block_violations(declaration, group)
    if group.kind == "mla":
        yield from judge.record_violations(declaration, group)
    yield from judge.local_head_violations(declaration, group)
    if group.shape is not None and group.axes is not None:
        yield from stride_violations(declaration, group)
    yield from judge.ambiguity(declaration, group)
    yield from judge.overflow_violations(declaration, group)


def stride_violations(declaration: KVDeclaration, group: GroupDeclaration) -> Iterator[Violation]:
    """KVC601 of what is told: lengths agree, extents are the sizes told, strides are those of the order."""
    axes, shape = group.axes or [], group.shape or []
    if len(axes) != len(shape) or (group.strides is not None and len(group.strides) != len(shape)):
        lengths = f"{len(axes)} axes, {len(shape)} extents, {len(group.strides or shape)} strides"
        yield _violation(f"declares {lengths}", "axes", len(axes), len(shape))
        return
    if any(extent < 1 for extent in shape):
        yield _violation(f"has an axis without extent: {shape}"[:200], "extent", min(shape), 1)
        return
    wrong = wrong_extent(declaration, group)
    if wrong is not None:
        name, extent, wanted = wrong
        yield _violation(f"its axis {name} is {extent} long, declared is {wanted}", name, extent, wanted)
    elif group.strides is not None:
        yield from _wrong_strides(group, axes, shape, group.strides)


def _wrong_strides(
    group: GroupDeclaration, axes: list[str], shape: list[int], strides: list[int]
) -> Iterator[Violation]:
    first: tuple[str, int, int] | None = None
    try:
        orders = stored_orders(axes, group.layout, group.stride_order)
    except LayoutMismatch as error:
        yield Violation(rule="KVC601", key="stride_order", message=str(error), measured={}, bound={})
        return
    for order in orders:
        problem = _problem(order, axes, shape, strides)
        if problem is None:
            return
        first = first or problem
    assert first is not None
    name, found, expected = first
    kind = "lets its rows overlap" if found < expected else "is not that layout's"
    stored = "" if orders[0].axes == tuple(axes) else f" stored as {' × '.join(orders[0].axes)} ({orders[0].name})"
    message = f"the stride of {name} is {found}, {' × '.join(axes)} of {shape}{stored} need {expected}: it {kind}"
    yield _violation(message, f"stride.{name}", found, expected)


def _problem(order: StoredOrder, axes: list[str], shape: list[int], strides: list[int]) -> tuple[str, int, int] | None:
    """The first axis that contradicts an order, its stride, and the one it needs."""
    at = range(len(axes)) if order.axes == tuple(axes) else [axes.index(name) for name in order.axes]
    problem = wrong_stride(list(order.axes), [shape[i] for i in at], [strides[i] for i in at])
    return None if problem is None else (order.axes[problem[0]], strides[at[problem[0]]], problem[1])


def _violation(message: str, name: str, found: int, expected: int) -> Violation:
    return Violation(rule="KVC601", key="strides", message=message, measured={name: found}, bound={name: expected})


def _small(numbers: Mapping[str, int | float | str]) -> dict[str, int | float | str]:
    """Numbers that JSON readers can hold."""
    return {
        name: f"about 2^{value.bit_length() - 1}" if isinstance(value, int) and abs(value) >= 1 << 53 else value
        for name, value in numbers.items()
    }

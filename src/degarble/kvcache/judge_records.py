"""Judges what an engine wrote down: bytes written, blocks shared with control tokens, traffic, poison, write paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.errors import EvidenceUnjudged, LayoutMismatch
from degarble.kvcache.bandwidth import Access, traffic
from degarble.kvcache.contract import Violation
from degarble.kvcache.declaration import AllocationRecord, KVDeclaration, PoisonRecord, WritePath, layout_of
from degarble.kvcache.isolation import Isolation, isolation_cost, shared_blocks
from degarble.kvcache.layout import CATALOGUE


def allocation_violations(records: Sequence[AllocationRecord]) -> Iterator[Violation]:
    """KVC609: written ≤ requested, not only ≤ reserved; and what is reserved holds what was requested."""
    for at, one in enumerate(records):
        if one.reserved < one.requested:
            message = f"{one.name}: {one.requested} bytes requested, {one.reserved} reserved"
        elif one.written > one.requested:
            past = one.written - one.requested
            inside = "inside the rounded size" if one.written <= one.reserved else "past the rounded size as well"
            message = f"{one.name}: {past} bytes written past the {one.requested} requested, {inside} of {one.reserved}"
        else:
            continue
        yield Violation(
            rule="KVC609",
            key=f"allocations[{at}]",
            message=message,
            measured={"written_bytes": one.written, "reserved_bytes": one.reserved},
            bound={"requested_bytes": one.requested},
        )


def isolation_violations(declaration: KVDeclaration) -> Iterator[Violation]:
    """KVC611: no token follows a control token of an isolated class in its block."""
    assert declaration.isolation is not None
    isolation = isolation_of(declaration)
    block_size = declaration.block_size or 16
    for at, one in enumerate(declaration.sequences or ()):
        found = shared_blocks(isolation, one.ids, one.edges or [0])
        if not found:
            continue
        first = found[0]
        cost = isolation_cost(isolation, [one.ids], block_size)
        yield Violation(
            rule="KVC611",
            key=f"sequences[{at}]",
            message=f"column {first.column} of {one.request} goes on after control token {first.token_id} at position "
            f"{first.position}; {len(found)} such places. Ending blocks there takes {cost.num_blocks_isolated} blocks "
            f"instead of {cost.num_blocks_plain}",
            measured={"shared_blocks": len(found), "blocks_with_policy": cost.num_blocks_isolated},
            bound={"shared_blocks": 0},
            request=one.request,
            position=first.position,
        )


def isolation_of(declaration: KVDeclaration) -> Isolation:
    """The policy that a declaration says holds. Raises EvidenceUnjudged for a token id that is none."""
    record = declaration.isolation
    assert record is not None
    bad = [token for token in record.control_tokens if not token.isdecimal()]
    if bad:
        raise EvidenceUnjudged(f"isolation.control_tokens: {bad[0]!r} is no token id")
    tokens = {int(token): kind for token, kind in record.control_tokens.items()}
    return Isolation(control_tokens=tokens, classes=frozenset(record.classes))


def waste_violations(declaration: KVDeclaration) -> Iterator[Violation]:
    """KVC613: useful over fetched bytes of every declared access, against its own limit."""
    group_size = 1
    if declaration.num_heads and declaration.num_kv_heads:
        group_size = max(1, declaration.num_heads // declaration.num_kv_heads)
    for at, one in enumerate(declaration.access or ()):
        group = next((group for group in declaration.groups if group.g == one.g), None)
        try:
            layout = None if group is None else layout_of(group)
            if group is None or layout is None:
                raise EvidenceUnjudged(f"access[{at}]: group {one.g} is not declared, or has no layout")
            geometry = declaration.geometry(group)
            layout.shape(geometry)
            access = Access(
                num_tokens=one.num_tokens,
                group_size=group_size,
                is_group_shared=one.is_group_shared,
                is_whole_block=one.is_whole_block,
                sector_bytes=one.sector_bytes,
            )
            moved = traffic(layout, geometry, group.itemsize or 2, access)
        except LayoutMismatch as error:
            raise EvidenceUnjudged(f"access[{at}]: {error}") from None
        if moved.efficiency >= one.min_efficiency:
            continue
        others = [other for other in CATALOGUE if set(other.atoms) == set(layout.atoms)]
        best = max(
            (traffic(other, geometry, group.itemsize or 2, access).efficiency, other.name)
            for other in (*others, layout)
        )
        yield Violation(
            rule="KVC613",
            key=f"access[{at}]",
            message=f"{layout.name}: {moved.useful_bytes} of {moved.fetched_bytes} fetched bytes are used "
            f"({moved.efficiency:.1%}) by one head of {one.num_tokens} tokens, group of {group_size} "
            f"{'sharing' if one.is_group_shared else 'not sharing'} the load; the best order of these axes is {best[1]} "
            f"({best[0]:.1%})",
            measured={"useful_bytes": moved.useful_bytes, "fetched_bytes": moved.fetched_bytes},
            bound={"min_efficiency": one.min_efficiency},
        )


def poison_violations(records: Sequence[PoisonRecord]) -> Iterator[Violation]:
    """KVC620: the output is bit-identical whatever lies in rows that nobody may read."""
    for at, one in enumerate(records):
        if one.max_abs_difference == 0:
            continue
        found = "not finite" if one.max_abs_difference is None else f"off by {one.max_abs_difference:.3g}"
        empty = -one.num_tokens % one.block_size
        yield Violation(
            rule="KVC620",
            key=f"poison[{at}]",
            message=f"with {one.fill} in the {one.where} ({empty} rows past {one.num_tokens} tokens in the last block) the "
            f"output is {found}",
            measured={"max_abs_difference": "not finite" if one.max_abs_difference is None else one.max_abs_difference},
            bound={"max_abs_difference": 0},
            position=one.num_tokens,
        )


def path_violations(paths: Sequence[WritePath]) -> Iterator[Violation]:
    """KVC628: every path that writes one layer's part uses the same transform, bits and group, and gives equal codes."""
    first: dict[tuple[int, str], WritePath] = {}
    for at, one in enumerate(paths):
        other = first.setdefault((one.layer, one.part), one)
        different = [
            name
            for name in ("transform", "seed", "num_bits", "group_size")
            if getattr(one, name) != getattr(other, name)
        ]
        if not different and None not in (one.codes, other.codes) and one.codes != other.codes:
            different = ["codes"]
        if not different:
            continue
        pairs = "; ".join(f"{name} {getattr(other, name)} and {getattr(one, name)}" for name in different)
        yield Violation(
            rule="KVC628",
            key=f"paths[{at}]",
            message=f"{other.path} and {one.path} write {one.part} of layer {one.layer} differently: {pairs}",
            measured={name: str(getattr(one, name)) for name in different},
            bound={name: str(getattr(other, name)) for name in different},
            layer=one.layer,
        )

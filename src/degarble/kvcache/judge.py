"""Judges a declaration alone: strides, readings of a shape, 32-bit reach, heads, owners, latent records.

Each function is pure and judges one rule; `checks/` and `kv lint` share them. What is not declared is not judged, and
`unjudged` says so: silence is never a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from degarble.errors import LayoutMismatch
from degarble.kvcache.contract import Violation, index_violation, violations
from degarble.kvcache.declaration import GroupDeclaration, KVDeclaration, facts_of, layout_of
from degarble.kvcache.geometry import Geometry, kv_heads_of_rank
from degarble.kvcache.latent_record import find_record, records_of_width
from degarble.kvcache.layout import KVLayout
from degarble.kvcache.reach import beyond
from degarble.kvcache.readings import readings, why_ambiguous
from degarble.kvcache.stored_order import stored_layouts
from degarble.kvcache.tensor_facts import TensorFacts
from degarble.kvcache.told_sizes import CACHED_HEADS, wrong_extent


def unjudged(declaration: KVDeclaration, group: GroupDeclaration) -> str | None:
    """Why the layout of a group cannot be judged; None if it can."""
    try:
        if facts_of(group) is None:
            return "no shape and strides are declared"
        if layout_of(group) is None:
            return "no axes are declared" + (f", and no layout is called {group.layout!r}" if group.layout else "")
        declaration.geometry(group)
    except LayoutMismatch as error:
        return str(error)
    return None


def declared(declaration: KVDeclaration, group: GroupDeclaration) -> tuple[KVLayout, Geometry, TensorFacts]:
    """What a judgeable group says. A tensor in kernel blocks is taken for what it is: smaller blocks, more of them."""
    layout, facts = layout_of(group), facts_of(group)
    assert layout is not None and facts is not None
    geometry = declaration.geometry(group)
    kernel = group.kernel_block_size
    if kernel and geometry.block_size % kernel == 0 and layout.shape(geometry) != facts.shape:
        ratio = geometry.block_size // kernel
        cut = Geometry(
            num_blocks=geometry.num_blocks * ratio,
            block_size=kernel,
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            latent=geometry.latent,
            num_layers=geometry.num_layers,
            x=geometry.x,
        )
        if layout.shape(cut) == facts.shape:
            geometry = cut
    return layout, geometry, facts


def stride_violations(declaration: KVDeclaration, group: GroupDeclaration) -> Iterator[Violation]:
    """KVC601, by the formulas of a layout of which every size is declared. Wrong heads alone are KVC614."""
    if unjudged(declaration, group) is None and not any(local_head_violations(declaration, group)):
        try:
            layout, geometry, facts = declared(declaration, group)
            stored = stored_layouts(layout, group.layout, group.stride_order)
            yield from violations(layout, geometry, facts, stored)
        except LayoutMismatch as error:
            yield Violation(rule="KVC601", key="axes", message=str(error), measured={}, bound={})


def overflow_violations(declaration: KVDeclaration, group: GroupDeclaration) -> Iterator[Violation]:
    """KVC619 of any shape, in elements, else in bytes (where an item size is declared); dense if no strides are."""
    shape = group.shape
    if not shape:
        return
    axes = group.axes or []
    page_axis = next((at for at, axis in enumerate(axes) if "num_blocks" in axis.split("*")), 0)
    for far in beyond(
        shape,
        group.strides,
        page_axis,
        offset=group.offset,
        itemsize=group.itemsize or 1,
        index_bits=group.index_bits,
    ):
        yield index_violation(far, shape[page_axis])
        return


def ambiguity(declaration: KVDeclaration, group: GroupDeclaration) -> Iterator[Violation]:
    """KVC612: no axes are declared and the shape, that of one layer, has more than one reading."""
    if group.axes is not None or group.shape is None or group.kind not in CACHED_HEADS:
        return
    if declaration.head_dim is None or declaration.num_kv_heads is None:
        return
    try:
        geometry = declaration.geometry(group)
    except LayoutMismatch:
        return
    fitting = [one for one in readings(group.shape, geometry, known_num_blocks=True) if "layers" not in one.atoms]
    if len(fitting) > 1:
        names = [layout.name for layout in fitting]
        yield Violation(
            rule="KVC612",
            key="shape",
            message=f"the shape {group.shape} is that of {', '.join(names[:-1])} and {names[-1]}, and no axes are declared "
            f"({why_ambiguous(geometry, fitting)})",
            measured={"readings": ", ".join(names)},
            bound={"readings": 1},
        )


def head_violations(declaration: KVDeclaration) -> Iterator[Violation]:
    """KVC614: which KV heads each rank holds, by the GQA rule."""
    heads, total, tp = declaration.num_heads, declaration.num_kv_heads, declaration.tp
    if total is None or total < 1 or tp < 1:
        return
    if heads is not None and heads % total:
        yield _heads("num_kv_heads", f"{heads} query heads cannot share {total} KV heads equally", total, heads)
        return
    try:
        kv_heads_of_rank(0, tp, total)
    except LayoutMismatch as error:
        yield _heads("tp", str(error), tp, total)
        return
    given = declaration.head_map
    if given is None:
        return
    if len(given) != tp:
        yield _heads("head_map", f"head_map names {len(given)} ranks, tp is {tp}", len(given), tp)
        return
    for rank, found in enumerate(given):
        right = kv_heads_of_rank(rank, tp, total)
        if len(found) != len(right) or found != list(right):
            rule = list(right[:64])
            yield _heads(
                "head_map",
                f"rank {rank} holds the KV heads {found[:64]}, by the rule {rule}",
                str(found[:64]),
                str(rule),
            )
            return


def local_head_violations(declaration: KVDeclaration, group: GroupDeclaration) -> Iterator[Violation]:
    """KVC614 of a tensor: its head axis has this rank's heads. Where other axes are wrong too, it is the shape (KVC601)."""
    local = declaration.local_kv_heads
    if group.kind not in CACHED_HEADS or local is None or local < 1 or not group.shape or not group.axes:
        return
    if "num_kv_heads" not in group.axes or len(group.axes) != len(group.shape):
        return
    found = group.shape[group.axes.index("num_kv_heads")]
    if found != local and wrong_extent(declaration, group) is None:
        total, tp = declaration.num_kv_heads, declaration.tp
        yield _heads("shape", f"the tensor has {found} KV heads, {total} over {tp} ranks are {local}", found, local)


def _heads(key: str, message: str, found: int | str, expected: int | str) -> Violation:
    return Violation(rule="KVC614", key=key, message=message, measured={"found": found}, bound={"expected": expected})


def kernel_block_violations(declaration: KVDeclaration, group: GroupDeclaration) -> Iterator[Violation]:
    """KVC624: a logical block is a whole number of kernel blocks."""
    logical, kernel = group.block_size or declaration.block_size, group.kernel_block_size
    if logical is not None and kernel is not None and (kernel <= 0 or logical % kernel):
        yield Violation(
            rule="KVC624",
            key="kernel_block_size",
            message=f"blocks of {logical} tokens are no whole number of kernel blocks of {kernel}",
            measured={"kernel_block_size": kernel},
            bound={"block_size": logical},
        )


def owner_violations(declaration: KVDeclaration, group: GroupDeclaration) -> Iterator[Violation]:
    """KVC629: a layer that shares another's cache aliases an owner, has the same storage, and never writes.

    The owner may be in another group.
    """
    if group.owner is None or not group.layers:
        return
    if len(group.owner) != len(group.layers):
        yield _owner("owner", f"{len(group.owner)} owners for {len(group.layers)} layers", len(group.owner))
        return
    owner = dict(zip(group.layers, group.owner, strict=True))
    every = {
        layer: own
        for one in declaration.groups
        if one.owner is not None and len(one.owner) == len(one.layers)
        for layer, own in zip(one.layers, one.owner, strict=True)
    } | owner
    pointers: Mapping[int, int] = {}
    if group.pointers is not None and len(group.pointers) == len(group.layers):
        pointers = dict(zip(group.layers, group.pointers, strict=True))
    for layer, own in owner.items():
        if own != layer and every.get(own) != own:
            yield _owner("owner", f"layer {layer} uses the cache of {own}, which has none of its own", own, layer)
        elif own != layer and group.writes is not None and layer in group.writes:
            yield _owner("writes", f"layer {layer} writes to the cache of layer {own}, which it only shares", layer)
        elif own != layer and own in pointers and pointers[layer] != pointers[own]:
            yield _owner("pointers", f"layer {layer} has another storage than its owner {own}", pointers[layer])
    writers = None if group.writes is None else sorted(set(group.writes) & set(owner))
    missing = (
        [] if writers is None else [layer for layer, own in owner.items() if own == layer and layer not in writers]
    )
    if missing:
        yield _owner("writes", f"layer {missing[0]} owns a cache and never writes to it", missing[0])


def _owner(key: str, message: str, found: int, layer: int | None = None) -> Violation:
    return Violation(rule="KVC629", key=key, message=message, measured={"found": found}, bound={}, layer=layer)


def record_violations(declaration: KVDeclaration, group: GroupDeclaration) -> Iterator[Violation]:
    """KVC631: an MLA group holds one record a token, of a known width, and no V."""
    if group.kind != "mla" and not (group.axes and "latent" in group.axes):
        return
    rank, rope = declaration.kv_lora_rank or 512, declaration.qk_rope_head_dim or 64
    if len(group.parts) > 1 or "v" in [part.lower() for part in group.parts] or (group.axes and "kv" in group.axes):
        yield _record(
            "parts", f"V is the first {rank} lanes of the latent record; the group declares a V of its own", "v", ""
        )
        return
    if not group.shape:
        return
    axes, shape = group.axes or [], group.shape
    heads = shape[axes.index("num_kv_heads")] if "num_kv_heads" in axes[: len(shape)] else 1
    if heads > 1:
        yield _record("shape", f"a latent has no heads, the tensor has {heads}", heads, 1)
        return
    lanes = next((shape[axes.index(name)] for name in ("latent", "head_dim") if name in axes[: len(shape)]), shape[-1])
    width = lanes * (group.itemsize or 2)
    if group.record is not None:
        named = find_record(group.record, rank, rope)
        if named is None:
            yield _record("record", f"no latent record is called {group.record!r}", group.record, "a known record")
        elif named.nbytes != width:
            message = f"{named.name} takes {named.nbytes} bytes a token, the tensor has {width}"
            yield _record("shape", message, width, named.nbytes)
    elif declaration.latent and lanes != rank + rope and not _is_packed(group, width, rank, rope):
        message = f"a token takes {width} bytes; {rank} + {rope} lanes take {_widths(rank, rope)}"
        yield _record("shape", message, width, _widths(rank, rope))
    yield from _record_strides(group)


def _is_packed(group: GroupDeclaration, width: int, rank: int, rope: int) -> bool:
    """A record of bytes; kv_lora_rank may count the unrotated lanes only, 448 of DeepSeek V4's 512 (vllm#56893)."""
    known = records_of_width(width, rank, rope) or (records_of_width(width) if rank + rope == 512 else ())
    return group.itemsize == 1 and bool(known)


def _record_strides(group: GroupDeclaration) -> Iterator[Violation]:
    """Records must not overlap; a page may be padded."""
    if group.strides is None or group.shape is None or len(group.strides) < 2 or len(group.strides) != len(group.shape):
        return
    if group.strides[-1] != 1 or group.strides[-2] < group.shape[-1]:
        message = f"strides {group.strides} do not hold records of {group.shape[-1]} items one after the other"
        yield _record("strides", message, str(group.strides), str([group.shape[-1], 1]))


def _widths(rank: int, rope: int) -> str:
    from degarble.kvcache.latent_record import known_records

    return ", ".join(f"{record.nbytes} ({record.name})" for record in known_records(rank, rope))


def _record(key: str, message: str, found: int | str, expected: int | str) -> Violation:
    return Violation(rule="KVC631", key=key, message=message, measured={"found": found}, bound={"expected": expected})


def of_group(declaration: KVDeclaration, group: GroupDeclaration) -> Sequence[Violation]:
    """Everything that can be said of one group."""
    return [
        *stride_violations(declaration, group),
        *ambiguity(declaration, group),
        *overflow_violations(declaration, group),
        *kernel_block_violations(declaration, group),
        *local_head_violations(declaration, group),
        *owner_violations(declaration, group),
        *record_violations(declaration, group),
    ]

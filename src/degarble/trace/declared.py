"""What can be judged before the first token: layouts, head maps, index reach and latent records of the meta line.

KVC601 strides, KVC612 ambiguous shapes, KVC614 heads per rank, KVC619 index reach, KVC624 kernel block size, KVC629
shared layers, KVC631 latent records. All are arithmetic on the declared groups (research KC01, KC02, KC04, KC05, KC15,
KC18, KC27); the formulas of the layouts are kept here, so that a trace can be judged without an allocator.
"""

from __future__ import annotations

from math import prod

from degarble.trace.event import Group, Meta
from degarble.trace.state import State

LIMIT = 2**31
ORDERS = {
    "NHD": ("num_blocks", "block_size", "num_kv_heads", "head_dim"),
    "HND": ("num_blocks", "num_kv_heads", "block_size", "head_dim"),
    "head-major": ("num_kv_heads", "num_blocks", "block_size", "head_dim"),
}
"""Axis orders by the text of `layout`."""
CACHED_HEADS = ("full", "window", "chunked", "cross")
LATENT_BYTES = {
    "656 bytes: 512 FP8, 4 float tile scales, 64 bfloat16": (512, 64, 656),
    "584 bytes: 448 + 128 + 8 scales": (448, 64, 584),
}
"""Byte records of (kv_lora_rank, qk_rope_head_dim) that are no plain width × itemsize (research KC15)."""


class MetaJudge:
    """Judges the meta line; every finding is at its counter."""

    def __init__(self, state: State) -> None:
        self.state = state

    def judge(self, meta: Meta) -> None:
        """All rules, group by group."""
        self._owners(meta)
        for group in meta.groups or [Group()]:
            self._heads(meta, group)
            self._kernel_block_size(meta, group)
            if group.kind == "mla":
                self._latent(meta, group)
            if group.shape is None:
                continue
            if group.axes is None:
                self._ambiguity(meta, group)
            elif self._axes(meta, group):
                self._strides(meta, group)
            self._reach(meta, group)

    def _fail(
        self,
        meta: Meta,
        group: Group,
        rule: str,
        message: str,
        measured: dict[str, int | str] | None = None,
        bound: dict[str, int | str] | None = None,
        *,
        block: int | None = None,
        is_info: bool = False,
    ) -> None:
        self.state.fail(
            rule,
            meta,
            f"group {group.g} ({group.kind}): {message}",
            key=f"groups.{group.g}",
            measured={name: _small(value) for name, value in (measured or {}).items()},
            bound={name: _small(value) for name, value in (bound or {}).items()},
            block=block,
            is_info=is_info,
        )

    def _heads(self, meta: Meta, group: Group) -> None:
        """kv(q) = q // (Hq / Hkv); tp <= Hkv splits the heads, tp > Hkv repeats each tp / Hkv times."""
        heads, total, tp = meta.num_heads, meta.num_kv_heads, meta.tp
        if group.kind not in CACHED_HEADS or total is None or total < 1 or tp < 1:
            return
        problem = None
        if heads is not None and heads % total:
            problem = f"{heads} query heads do not divide into {total} KV heads"
        elif tp <= total and total % tp:
            problem = f"{total} KV heads do not divide over {tp} ranks"
        elif tp > total and tp % total:
            problem = f"{tp} ranks do not divide over {total} KV heads"
        elif group.axes is not None and group.shape is not None and "num_kv_heads" in group.axes:
            index = group.axes.index("num_kv_heads")
            local = group.shape[index] if index < len(group.shape) else None
            if local is not None and local != max(1, total // tp):
                problem = f"this rank's tensor has {local} KV heads, {total} over {tp} ranks are {max(1, total // tp)}"
        if problem is not None:
            measured: dict[str, int | str] = {"num_kv_heads": total, "tp": tp}
            self._fail(meta, group, "KVC614", problem, measured, {"local_heads": max(1, total // tp)})

    def _kernel_block_size(self, meta: Meta, group: Group) -> None:
        kernel, size = group.kernel_block_size, group.block_size or meta.block_size
        if kernel is None or size is None:
            return
        if kernel <= 0 or size % kernel:
            self._fail(
                meta,
                group,
                "KVC624",
                f"blocks of {size} rows do not divide into kernel blocks of {kernel}",
                {"kernel_block_size": kernel},
                {"block_size": size},
            )

    def _latent(self, meta: Meta, group: Group) -> None:
        """One latent record per token: width kv_lora_rank + qk_rope_head_dim, one part, no heads."""
        rank, rope = meta.kv_lora_rank, meta.qk_rope_head_dim
        if group.parts is not None and len(group.parts) > 1:
            self._fail(
                meta,
                group,
                "KVC631",
                f"has the parts {group.parts[:4]}: the values are the first columns of the latent, there is no second",
                {"parts": len(group.parts)},
                {"parts": 1},
            )
            return
        if rank is None or rope is None or group.shape is None or not group.shape:
            return
        axes = group.axes or []
        for name, most in (("kv", 1), ("num_kv_heads", 1)):
            if name in axes and axes.index(name) < len(group.shape) and group.shape[axes.index(name)] > most:
                found = group.shape[axes.index(name)]
                self._fail(
                    meta, group, "KVC631", f"has {found} along {name}: a latent has no heads", {name: found}, {name: 1}
                )
                return
        index = next((axes.index(name) for name in ("latent", "head_dim") if name in axes), len(group.shape) - 1)
        width = group.shape[index] if index < len(group.shape) else group.shape[-1]
        size = width * (group.itemsize or 2)
        records = [nbytes for a, b, nbytes in LATENT_BYTES.values() if (a, b) == (rank, rope)]
        if width != rank + rope and not (size in records and (group.itemsize or 2) == 1):
            self._fail(
                meta,
                group,
                "KVC631",
                f"its record is {width} wide, kv_lora_rank {rank} + qk_rope_head_dim {rope} are {rank + rope}",
                {"width": width},
                {"width": rank + rope},
            )

    def _axes(self, meta: Meta, group: Group) -> bool:
        """Axes, shape and strides have one length, and the shape is what the sizes say."""
        axes, shape = group.axes or [], group.shape or []
        if len(axes) != len(shape) or (group.strides is not None and len(group.strides) != len(shape)):
            lengths = f"{len(axes)} axes, {len(shape)} extents, {len(group.strides or shape)} strides"
            self._fail(meta, group, "KVC601", f"declares {lengths}", {"axes": len(axes)}, {"axes": len(shape)})
            return False
        if any(extent < 1 for extent in shape):
            self._fail(meta, group, "KVC601", f"has an axis without extent: {shape}"[:200])
            return False
        size, kernel = group.block_size or meta.block_size, group.kernel_block_size
        blocks = group.num_blocks if group.num_blocks is not None else meta.num_blocks
        ratio = size // kernel if size and kernel and kernel > 0 else 1
        told: dict[str, set[int | None]] = {
            "block_size": {size, kernel} - {None},
            "num_blocks": set() if blocks is None else {blocks, blocks * ratio},
            "head_dim": set() if meta.head_dim is None or group.kind == "mla" else {meta.head_dim, 2 * meta.head_dim},
            "kv": {1, 2},
        }
        for name, extent in zip(axes, shape, strict=True):
            if told.get(name) and extent not in told[name]:
                wanted = min(value for value in told[name] if value is not None)
                message = f"its axis {name} is {extent} long, declared is {wanted}"
                self._fail(meta, group, "KVC601", message, {name: extent}, {name: wanted})
                return False
        return True

    def _strides(self, meta: Meta, group: Group) -> None:
        """Axes inside a block are dense; a larger page stride is padding, a smaller one lets pages overlap."""
        if group.strides is None:
            return
        axes, shape = group.axes or [], group.shape or []
        problem = _stride_problem(axes, shape, group.strides)
        named = ORDERS.get((group.layout or "").strip().replace("_", "-"))
        if problem is not None and named is not None and sorted(named) == sorted(axes):
            order = [axes.index(name) for name in named]
            problem = _stride_problem(list(named), [shape[i] for i in order], [group.strides[i] for i in order])
        if problem is None:
            return
        index, expected = problem
        name = (named if named is not None and sorted(named) == sorted(axes) else axes)[index]
        found = group.strides[axes.index(name)]
        kind = "lets its rows overlap" if found < expected else "is not that layout's"
        self._fail(
            meta,
            group,
            "KVC601",
            f"the stride of {name} is {found}, {' × '.join(axes)} of {shape} need {expected}: it {kind}",
            {f"stride.{name}": found},
            {f"stride.{name}": expected},
        )

    def _reach(self, meta: Meta, group: Group) -> None:
        """The last element is within 32 bits, counted in elements and in bytes, or the kernels are declared 64-bit."""
        shape = group.shape or []
        if group.index_bits >= 64 or any(extent < 1 for extent in shape):
            return
        strides = group.strides or [prod(shape[i + 1 :]) for i in range(len(shape))]
        if len(strides) != len(shape) or any(stride < 0 for stride in strides):
            return
        last = group.offset + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        itemsize = group.itemsize or 1
        if max(last, last * itemsize + itemsize - 1) < LIMIT:
            return
        unit = 1 if last >= LIMIT else itemsize
        page = (
            strides[(group.axes or ["num_blocks"]).index("num_blocks")]
            if "num_blocks" in (group.axes or [])
            else strides[0]
        )
        bad = -(-LIMIT // (page * unit)) if page else None
        self._fail(
            meta,
            group,
            "KVC619",
            f"the last element lies {last * unit} {'bytes' if unit > 1 else 'elements'} in, kernels count to 2^31 - 1: "
            f"block {bad} is the first beyond (declare index_bits 64 if no kernel is 32-bit)",
            {"last_offset": last * unit},
            {"max": LIMIT - 1},
            block=bad,
        )

    def _ambiguity(self, meta: Meta, group: Group) -> None:
        """A shape that two layouts fit says nothing about which one it is."""
        if group.kind not in CACHED_HEADS:
            return
        readings = readings_of(meta, group)
        if len(readings) > 1:
            self._fail(
                meta,
                group,
                "KVC612",
                f"declares no axes, and {group.shape} fits {len(readings)} layouts: {'; '.join(readings[:4])}",
                {"readings": len(readings)},
                {"readings": 1},
                is_info=True,
            )

    def _owners(self, meta: Meta) -> None:
        """owner(owner(l)) = owner(l), and the owner has a cache."""
        owner: dict[int, int] = {}
        group_of: dict[int, Group] = {}
        for group in meta.groups or []:
            if group.owner is None or group.layers is None:
                continue
            if len(group.owner) != len(group.layers):
                message = f"{len(group.owner)} owners for {len(group.layers)} layers"
                self._fail(meta, group, "KVC629", message, {"owners": len(group.owner)}, {"owners": len(group.layers)})
                continue
            owner.update(zip(group.layers, group.owner, strict=True))
            group_of.update(dict.fromkeys(group.layers, group))
        for layer, owned_by in owner.items():
            if owner.get(owned_by) == owned_by:
                continue
            found = "is in no group" if owned_by not in owner else f"reads the cache of {owner[owned_by]} itself"
            message = f"layer {layer} shares the cache of layer {owned_by}, which {found}"
            group = group_of[layer]
            self.state.fail("KVC629", meta, f"group {group.g}: {message}", layer=layer, key=f"groups.{group.g}")
            return


def _stride_problem(axes: list[str], shape: list[int], strides: list[int]) -> tuple[int, int] | None:
    """The first axis (from the inside) with a wrong stride, and what it needs."""
    dense = 1
    page = axes.index("num_blocks") if "num_blocks" in axes else -1
    for index in range(len(axes) - 1, -1, -1):
        stride, extent = strides[index], shape[index]
        is_page = index <= page
        if extent > 1 and (stride < dense or (stride != dense and not is_page)):
            return index, dense
        dense = max(dense, stride) * extent if is_page else dense * extent
    return None


def readings_of(meta: Meta, group: Group) -> list[str]:
    """Every layout of the catalogue whose extents are the observed shape."""
    blocks = group.num_blocks if group.num_blocks is not None else meta.num_blocks
    size, dim, total = group.block_size or meta.block_size, meta.head_dim, meta.num_kv_heads
    if None in (blocks, size, dim, total) or group.shape is None:
        return []
    assert blocks is not None and size is not None and dim is not None and total is not None
    heads = max(1, total // max(1, meta.tp))
    extents = {
        "NB": blocks,
        "bs": size,
        "H": heads,
        "D": dim,
        "2": 2,
        "2D": 2 * dim,
        "HD": heads * dim,
        "H2D": 2 * heads * dim,
    }
    return [reading for reading in READINGS if [extents[axis] for axis in reading.split(",")] == group.shape]


READINGS = (
    "NB,bs,H,D",
    "NB,H,bs,D",
    "H,NB,bs,D",
    "NB,bs,H,2D",
    "NB,H,bs,2D",
    "NB,bs,2,HD",
    "NB,2,bs,HD",
    "2,NB,bs,HD",
    "NB,2,bs,H,D",
    "NB,2,H,bs,D",
    "NB,bs,2,H,D",
    "2,NB,bs,H,D",
    "2,NB,H,bs,D",
    "NB,bs,HD",
    "NB,bs,H2D",
)
"""Axis orders in use (research KC01, KC02); 2 is the K/V axis, HD heads fused with their dimension."""


def _small(value: int | str) -> int | str:
    return value if isinstance(value, str) or abs(value) < 1 << 53 else f"about 2^{value.bit_length() - 1}"

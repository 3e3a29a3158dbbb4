"""Two dumped caches, compared by layer, K or V, token, head and lane, whatever their layouts are.

A dump is an array in a declared layout. Both are brought to [layer, kv, token, head, dim], where a token is a slot of
the pool or, with a block table, a position of one sequence. If they differ, the explanations that engines have made
true before are tried: another layout, K and V exchanged, heads, layers or blocks permuted, tokens shifted, lanes
interleaved, one factor. One is named only if it makes the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.errors import LayoutMismatch
from degarble.kvcache.boundary import Boundaries, fingerprint
from degarble.kvcache.layout import CATALOGUE, KVLayout
from degarble.kvcache.slot_mapping import slot_mapping

CANONICAL = ("layers", "kv", "num_blocks", "block_size", "num_kv_heads", "head_dim")
MAX_SHIFT = 64
"""Tokens, and at most half of them: a few equal rows at the edge explain nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """Rows of a cache, and where they came from."""

    layout: KVLayout
    stored: Array
    """As dumped, in the layout's axis order."""
    sizes: dict[str, int]
    table: tuple[int, ...] | None
    num_tokens: int | None

    def rows(self) -> Array:
        """[layer, kv, token, head, dim]"""
        return _tokens(canonical(self.stored, self.layout, self.sizes), self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first element that differs, and how many do."""

    layer: int
    part: int
    token: int
    head: int
    dim: int
    found: float
    expected: float
    num_different: int
    num_elements: int
    max_abs_difference: float
    explanation: str | None
    """What makes the two equal, or None if nothing that was tried does."""
    first_token: int
    """The first token that differs in any layer, part, head or lane."""
    boundary: str
    """What the first token lies on."""


def make_dump(
    stored: Array,
    layout: KVLayout,
    known: dict[str, int],
    table: Sequence[int] | None = None,
    num_tokens: int | None = None,
) -> Dump:
    """`known` has sizes of parts of merged axes. Raises LayoutMismatch where the array does not fit the layout."""
    if stored.ndim != len(layout.axes):
        raise LayoutMismatch(
            f"layout {layout.name} has {len(layout.axes)} axes, the dump has the shape {list(stored.shape)}"
        )
    sizes = {"kv": 2} | known
    for axis, size in zip(layout.axes, stored.shape, strict=True):
        atoms = axis.split("*")
        open_atoms = [atom for atom in atoms if atom not in sizes]
        rest = prod(sizes[atom] for atom in atoms if atom in sizes)
        if len(open_atoms) > 1:
            raise LayoutMismatch(f"axis {axis} of {size} can be cut in many ways: give the size of {open_atoms[0]}")
        if rest == 0 or size % rest or (not open_atoms and size != rest):
            raise LayoutMismatch(f"axis {axis} has the size {size} in the dump, and {rest} is declared for it")
        if open_atoms:
            sizes[open_atoms[0]] = size // rest
    if table is not None:
        if any(not 0 <= block < sizes["num_blocks"] for block in table):
            raise LayoutMismatch(f"the block table {list(table)} names blocks outside [0, {sizes['num_blocks']})")
        if num_tokens is not None and not 0 < num_tokens <= len(table) * sizes["block_size"]:
            raise LayoutMismatch(f"{num_tokens} tokens do not fit {len(table)} blocks of {sizes['block_size']}")
    return Dump(
        layout=layout, stored=stored, sizes=sizes, table=None if table is None else tuple(table), num_tokens=num_tokens
    )


def canonical(stored: Array, layout: KVLayout, sizes: dict[str, int]) -> Array:
    """[layers, kv, num_blocks, block_size, num_kv_heads, head_dim]; axes the layout has not are of size 1."""
    apart = stored.reshape([sizes[atom] for atom in layout.atoms])
    order = [*layout.atoms]
    if "head_dim/x" in order:
        apart = np.moveaxis(apart, order.index("x"), -1)
        order.remove("x")
        apart = np.moveaxis(apart, order.index("head_dim/x"), -2)
        order.remove("head_dim/x")
        apart = apart.reshape(*apart.shape[:-2], -1)
        order.append("head_dim")
    order = ["head_dim" if atom == "latent" else atom for atom in order]
    present = [axis for axis in CANONICAL if axis in order]
    apart = apart.transpose([order.index(axis) for axis in present])
    return apart.reshape([apart.shape[present.index(axis)] if axis in present else 1 for axis in CANONICAL])


def _tokens(array: Array, dump: Dump) -> Array:
    flat = array.reshape(*array.shape[:2], -1, *array.shape[4:])
    if dump.table is None:
        return flat if dump.num_tokens is None else flat[:, :, : dump.num_tokens]
    size = dump.sizes["block_size"]
    slots = slot_mapping(dump.table, 0, dump.num_tokens or len(dump.table) * size, size)
    return flat[:, :, slots]


def compare_dumps(
    found: Dump, expected: Dump, *, atol: float = 0.0, known: Boundaries | None = None
) -> Difference | None:
    """The first difference with its explanation, or None. Raises LayoutMismatch if they hold different things.

    `known` has boundaries that a dump does not show: chunks, a window, rejections.
    """
    mine, other = found.rows(), expected.rows()
    if mine.shape != other.shape:
        raise LayoutMismatch(
            f"[layer, kv, token, head, dim] are {list(mine.shape)} in the first dump and {list(other.shape)} in the second"
        )
    different = ~_equal(mine, other, atol)
    if not different.any():
        return None
    place = np.unravel_index(int(different.reshape(-1).argmax()), mine.shape)
    layer, part, token, head, dim = (int(at) for at in place)
    gap = np.abs(_float(mine) - _float(other))
    first_token = int(different.any(axis=(0, 1, 3, 4)).argmax())
    return Difference(
        layer=layer,
        part=part,
        token=token,
        head=head,
        dim=dim,
        found=float(mine[place]),
        expected=float(other[place]),
        num_different=int(different.sum()),
        num_elements=mine.size,
        max_abs_difference=float(np.nanmax(gap)) if np.isfinite(gap).any() else float("nan"),
        explanation=next(_explanations(found, mine, other, atol), None),
        first_token=first_token,
        boundary=_boundary(found, first_token, mine.shape[2], known or Boundaries()),
    )


def _boundary(dump: Dump, token: int, num_tokens: int, known: Boundaries) -> str:
    """What the first bad token lies on. Without a table a token is a slot, and its block follows from it."""
    size = dump.sizes["block_size"]
    column = token // size
    block = column if dump.table is None else dump.table[column]
    after = dump.layout.atoms[dump.layout.atoms.index("num_blocks") + 1 :]
    stride = prod(dump.sizes[atom] for atom in after)
    units = (("elements", stride), ("bytes", stride * dump.stored.dtype.itemsize))
    complete = replace(
        known, num_tokens=num_tokens, block_sizes=(size,), block_strides=units, num_blocks=dump.sizes["num_blocks"]
    )
    return fingerprint(token, complete, block).told("token")


def _float(array: Array) -> Array:
    return array.astype(np.float64)


def _equal(mine: Array, other: Array, atol: float) -> Array:
    """Element by element; NaN equals NaN."""
    a, b = _float(mine), _float(other)
    with np.errstate(invalid="ignore"):
        near = (a == b) | (np.abs(a - b) <= atol) | (np.isnan(a) & np.isnan(b))
    return np.asarray(near)


def _explanations(found: Dump, mine: Array, other: Array, atol: float) -> Iterator[str]:
    """Every transformation that makes the first dump equal to the second, the likeliest first."""

    def same(candidate: Array) -> bool:
        return candidate.shape == other.shape and bool(_equal(candidate, other, atol).all())

    if mine.shape[1] == 2 and same(mine[:, ::-1]):
        yield "K and V are exchanged"
    yield from _other_layouts(found, same)
    yield from _permutations(mine, other, same)
    for shift in range(1, min(MAX_SHIFT, mine.shape[2] // 2) + 1):
        if _equal(mine[:, :, shift:], other[:, :, :-shift], atol).all():
            yield f"tokens are {shift} slots too late: token t of the first dump is token t - {shift} of the second"
        if _equal(mine[:, :, :-shift], other[:, :, shift:], atol).all():
            yield f"tokens are {shift} slots too early: token t of the first dump is token t + {shift} of the second"
    yield from _factor(mine, other, atol)


def _other_layouts(found: Dump, same: Callable[[Array], bool]) -> Iterator[str]:
    """The same bytes under every other order of axes."""
    for layout in CATALOGUE:
        if layout.axes == found.layout.axes or set(layout.atoms) != set(found.layout.atoms):
            continue
        shape = [prod(found.sizes[atom] for atom in axis.split("*")) for axis in layout.axes]
        read = canonical(np.ascontiguousarray(found.stored).reshape(shape), layout, found.sizes)
        if same(_tokens(read, found)):
            yield (
                f"the first dump is laid out as {layout.name} {list(layout.axes)}, not as {found.layout.name}: "
                f"stride[{layout.axes[-2]}] is {layout.formula(layout.axes[-2])}"
            )


def _permutations(mine: Array, other: Array, same: Callable[[Array], bool]) -> Iterator[str]:
    """Heads, layers, tokens or lanes in another order; each index must have exactly one partner."""
    for axis, name in ((3, "heads"), (0, "layers"), (2, "tokens"), (4, "lanes")):
        order = _matching(np.moveaxis(mine, axis, 0), np.moveaxis(other, axis, 0))
        if order is not None and order != list(range(len(order))) and same(np.take(mine, order, axis=axis)):
            yield f"{name} are permuted: {name[:-1]} i of the second is {name[:-1]} {_shown(order)}[i] of the first"


def _shown(order: Sequence[int]) -> str:
    """The order in brackets, and whether it is the one between pairs and halves of rotated lanes."""
    size = len(order)
    halves = [at // 2 + at % 2 * (size // 2) for at in range(size)]
    known = {
        tuple(halves): " (the first has halves, the second pairs)",
        tuple(sorted(range(size), key=halves.__getitem__)): " (the first has pairs, the second halves)",
    }
    text = ", ".join(map(str, order[:16])) + (" …" if size > 16 else "")
    return f"[{text}]{known.get(tuple(order), '') if size % 2 == 0 else ''}"


def _matching(mine: Array, other: Array) -> list[int] | None:
    """For each row of `other` the row of `mine` with the same bytes; None unless it is one to one."""
    places: dict[bytes, int] = {}
    for at, row in enumerate(mine):
        places[np.ascontiguousarray(row).tobytes()] = at
    order = [places.get(np.ascontiguousarray(row.astype(mine.dtype)).tobytes(), -1) for row in other]
    return order if len(places) == len(mine) and -1 not in order and len(set(order)) == len(order) else None


def _factor(mine: Array, other: Array, atol: float) -> Iterator[str]:
    a, b = _float(mine), _float(other)
    usable = (a != 0) & np.isfinite(a) & np.isfinite(b)
    if not usable.any():
        return
    factor = float(np.median(b[usable] / a[usable]))
    with np.errstate(invalid="ignore", over="ignore"):
        is_close = np.allclose(a * factor, b, rtol=2e-2, atol=max(atol, 1e-12))
    if np.isfinite(factor) and factor not in (0.0, 1.0) and is_close:
        yield f"the second is {factor:.6g} times the first: a scale that one side did not apply"

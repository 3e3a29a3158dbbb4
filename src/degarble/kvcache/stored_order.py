"""In which order the axes of a tensor may lie in memory: a permuted view is healthy, another order than named is not.

vLLM declares the shape in logical order and strides of a permutation of it (`v1/kv_cache_layout.py` of 0.33: logical
[L, B, H, N, C], stored as LBNHC and others, NHD and HND for short). Kernels take the strides of such a view, so an order
that nobody names may be that of any known layout of the same axes. What is named must be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from degarble.errors import LayoutMismatch
from degarble.kvcache.layout import CATALOGUE, KVLayout

LETTERS = {
    "L": ("layers",),
    "B": ("num_blocks",),
    "N": ("block_size",),
    "H": ("num_kv_heads",),
    "D": ("head_dim", "latent"),
    "C": ("head_dim", "latent"),
}
"""Axes by the letters of names such as NHD or LBHNC."""


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """The axes of a tensor from the outermost of its memory to the innermost, and who says so."""

    name: str
    axes: tuple[str, ...]


def stored_orders(
    axes: Sequence[str], named: str | None = None, stride_order: Sequence[int] | None = None
) -> tuple[StoredOrder, ...]:
    """Orders that strides may have; the first is the one to report against.

    `stride_order` has the axes' indices, outermost first. Raises LayoutMismatch if it is no permutation.
    """
    own = StoredOrder(_own_name(axes), tuple(axes))
    if stride_order is not None:
        if sorted(stride_order) != list(range(len(axes))):
            raise LayoutMismatch(
                f"stride_order {str(list(stride_order[:12]))[:200]} is no permutation of {len(axes)} axes"
            )
        return (StoredOrder("the declared stride_order", tuple(axes[at] for at in stride_order)),)
    if len(set(axes)) != len(axes):
        return (own,)
    text = (named or "").strip().replace("_", "-")
    known = next((layout for layout in CATALOGUE if layout.name.lower() == text.lower()), None)
    exact = known and _projected(known, axes)
    if exact:
        return (StoredOrder(text, exact),)
    if text and set(text.upper()) <= set(LETTERS):
        return _by_letters(text.upper(), axes) or (own,)
    if known:
        return (own,)
    views = ((layout.name, _projected(layout, axes)) for layout in CATALOGUE)
    return (own, *(StoredOrder(name, order) for name, order in views if order and order != own.axes))


def stored_layouts(
    layout: KVLayout, named: str | None = None, stride_order: Sequence[int] | None = None
) -> tuple[KVLayout, ...]:
    """The same of a layout whose axes are all known."""
    return tuple(KVLayout(name=one.name, axes=one.axes) for one in stored_orders(layout.axes, named, stride_order))


def _own_name(axes: Sequence[str]) -> str:
    return next((layout.name for layout in CATALOGUE if layout.axes == tuple(axes)), "declared")


def _projected(layout: KVLayout, axes: Sequence[str]) -> tuple[str, ...] | None:
    """The tensor's axes in the order of a layout; None if it has others, or takes apart what the tensor has merged."""
    parts = {axis: axis.split("*") for axis in axes}
    order = tuple(sorted(axes, key=lambda axis: _place(layout, parts[axis][0])))
    return order if tuple(atom for axis in order for atom in parts[axis]) == layout.atoms else None


def _place(layout: KVLayout, atom: str) -> int:
    return layout.atoms.index(atom) if atom in layout.atoms else len(layout.atoms)


def _by_letters(code: str, axes: Sequence[str]) -> tuple[StoredOrder, ...]:
    """Orders that keep the sequence of a letter code; a single axis that it does not name (K and V) may be anywhere.

    Without a B blocks are outermost, as in NHD. Nothing if the code does not speak of this tensor.
    """
    code = code if "B" in code else f"B{code}"
    order = [axis for letter in code for axis in axes if set(axis.split("*")) & set(LETTERS[letter])]
    order = list(dict.fromkeys(order))
    free = [axis for axis in axes if axis not in order]
    if len(order) < 2 or len(free) > 1:
        return ()
    if not free:
        return (StoredOrder(code, tuple(order)),)
    places = sorted(range(len(order) + 1), key=lambda at: abs(at - list(axes).index(free[0])))
    return tuple(StoredOrder(code, (*order[:at], free[0], *order[at:])) for at in places)

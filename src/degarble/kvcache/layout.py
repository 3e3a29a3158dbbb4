"""A declared layout of K/V storage: axis order, and from it every stride as a formula.

The stride of an axis is the product of the sizes of all axes after it. Nothing is computed from a shape alone: two
layouts can have one shape (`readings.py`). The axis `num_blocks` may have a larger stride than its formula, which is
padding at the end of each page; axes outside it may as well; axes inside may not. A smaller stride makes blocks overlap.

    NHD         [num_blocks, block_size, num_kv_heads, head_dim]     stride[0] = block_size·num_kv_heads·head_dim
    HND         [num_blocks, num_kv_heads, block_size, head_dim]     stride[0] = num_kv_heads·block_size·head_dim
    head-major  [num_kv_heads, num_blocks, block_size, head_dim]     stride[0] = num_blocks·block_size·head_dim
    MLA         [num_blocks, block_size, latent]                     one head, V = first kv_lora_rank lanes

So "stride[0] = head_dim·block_size·num_blocks" is right for head-major storage only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from degarble.errors import LayoutMismatch
from degarble.kvcache.geometry import AXES, Geometry


@dataclass(frozen=True, kw_only=True)
class KVLayout:
    """Axis names from the outermost to the innermost; `a*b` is one axis of the tensor made of two, a outside b."""

    name: str
    axes: tuple[str, ...]

    def __post_init__(self) -> None:
        atoms = [atom for axis in self.axes for atom in axis.split("*")]
        unknown = [atom for atom in atoms if atom not in AXES]
        if unknown:
            raise LayoutMismatch(f"layout {self.name}: no axis is called {unknown[0]!r}; known: {', '.join(AXES)}")
        if len(set(atoms)) != len(atoms):
            raise LayoutMismatch(f"layout {self.name}: an axis is named twice in {list(self.axes)}")
        if "block_size" not in atoms or "num_blocks" not in atoms:
            raise LayoutMismatch(f"layout {self.name}: num_blocks and block_size must be among {list(self.axes)}")

    @cached_property
    def atoms(self) -> tuple[str, ...]:
        """Axes with the merged ones taken apart."""
        return tuple(atom for axis in self.axes for atom in axis.split("*"))

    @property
    def has_kv_axis(self) -> bool:
        """Whether K and V lie in one tensor."""
        return "kv" in self.atoms

    def shape(self, geometry: Geometry) -> tuple[int, ...]:
        """The shape a tensor of this layout has. Raises LayoutMismatch for an axis the geometry has not."""
        sizes = geometry.sizes()
        shape = tuple(prod(sizes[atom] for atom in axis.split("*")) for axis in self.axes)
        for axis, size in zip(self.axes, shape, strict=True):
            if size < 1:
                raise LayoutMismatch(f"layout {self.name}: the geometry gives axis {axis} the size {size}")
        return shape

    def formula(self, axis: str) -> str:
        """The stride of an axis in names: `block_size·num_kv_heads·head_dim`; the innermost axis has 1."""
        after = self.atoms[self.atoms.index(axis.split("*")[-1]) + 1 :]
        return "·".join(after) or "1"

    def strides(self, geometry: Geometry, *, page_stride: int | None = None) -> tuple[int, ...]:
        """Strides in elements, by the formulas; `page_stride` is a num_blocks stride with padding."""
        by_atom = self.atom_strides(geometry, page_stride=page_stride)
        return tuple(by_atom[axis.split("*")[-1]] for axis in self.axes)

    def atom_strides(self, geometry: Geometry, *, page_stride: int | None = None) -> dict[str, int]:
        """Stride of every single axis, merged ones taken apart."""
        sizes = geometry.sizes()
        found: dict[str, int] = {}
        step = 1
        for atom in reversed(self.atoms):
            if atom == "num_blocks" and page_stride is not None:
                if page_stride < step:
                    raise LayoutMismatch(
                        f"layout {self.name}: a page needs {step} elements, page_stride is {page_stride}"
                    )
                step = page_stride
            found[atom] = step
            step *= sizes[atom]
        return found

    def split_strides(self, geometry: Geometry, strides: Sequence[int]) -> dict[str, int]:
        """Strides of a real tensor, by single axis: inside a merged axis the parts lie densely."""
        sizes = geometry.sizes()
        found: dict[str, int] = {}
        for axis, stride in zip(self.axes, strides, strict=True):
            step = stride
            for atom in reversed(axis.split("*")):
                found[atom] = step
                step *= sizes[atom]
        return found


def element_offset(strides: Mapping[str, int], coordinates: Mapping[str, int], x: int = 8) -> int:
    """Offset of one element from strides by axis; `head_dim` is split where the layout splits it."""
    total = 0
    for axis, at in coordinates.items():
        if axis == "head_dim" and "head_dim/x" in strides:
            total += at // x * strides["head_dim/x"] + at % x * strides["x"]
        else:
            total += at * strides.get(axis, 0)
    return total


def _layout(name: str, *axes: str) -> KVLayout:
    return KVLayout(name=name, axes=axes)


CATALOGUE: tuple[KVLayout, ...] = (
    _layout("NHD", "num_blocks", "block_size", "num_kv_heads", "head_dim"),
    _layout("HND", "num_blocks", "num_kv_heads", "block_size", "head_dim"),
    _layout("head-major", "num_kv_heads", "num_blocks", "block_size", "head_dim"),
    _layout("NHD-flat", "num_blocks", "block_size", "num_kv_heads*head_dim"),
    _layout("NHD-kv-first", "kv", "num_blocks", "block_size", "num_kv_heads", "head_dim"),
    _layout("NHD-block-first", "num_blocks", "kv", "block_size", "num_kv_heads", "head_dim"),
    _layout("HND-kv-first", "kv", "num_blocks", "num_kv_heads", "block_size", "head_dim"),
    _layout("HND-block-first", "num_blocks", "kv", "num_kv_heads", "block_size", "head_dim"),
    _layout("NHD-fused", "num_blocks", "block_size", "num_kv_heads", "kv*head_dim"),
    _layout("HND-fused", "num_blocks", "num_kv_heads", "block_size", "kv*head_dim"),
    _layout("NHD-flat-kv-inner", "num_blocks", "block_size", "kv", "num_kv_heads*head_dim"),
    _layout("NHD-flat-kv-first", "kv", "num_blocks", "block_size", "num_kv_heads*head_dim"),
    _layout("NHD-flat-block-first", "num_blocks", "kv", "block_size", "num_kv_heads*head_dim"),
    _layout("legacy-k", "num_blocks", "num_kv_heads", "head_dim/x", "block_size", "x"),
    _layout("legacy-v", "num_blocks", "num_kv_heads", "head_dim", "block_size"),
    _layout("layer-first", "layers", "num_blocks", "block_size", "num_kv_heads", "head_dim"),
    _layout("layer-first-kv", "layers", "kv", "num_blocks", "block_size", "num_kv_heads", "head_dim"),
    _layout("page-first", "num_blocks", "layers", "block_size", "num_kv_heads", "head_dim"),
    _layout("page-first-kv", "num_blocks", "layers", "kv", "block_size", "num_kv_heads", "head_dim"),
    _layout("MLA", "num_blocks", "block_size", "latent"),
    _layout("MLA-layer-first", "layers", "num_blocks", "block_size", "latent"),
    _layout("MLA-page-first", "num_blocks", "layers", "block_size", "latent"),
)
"""Layouts met in public engines. A declaration may name any other order of axes."""


def read_layout(text: str) -> KVLayout:
    """A layout as it is typed: a name, or axes with commas. Raises LayoutMismatch for what is neither."""
    return find_layout([axis.strip() for axis in text.split(",")] if "," in text else text)


def find_layout(name_or_axes: str | Sequence[str]) -> KVLayout:
    """A layout by its name, without regard to case, or by its axes. Raises LayoutMismatch for an unknown name."""
    if isinstance(name_or_axes, str):
        for layout in CATALOGUE:
            if layout.name.lower() == name_or_axes.lower():
                return layout
        known = ", ".join(layout.name for layout in CATALOGUE)
        raise LayoutMismatch(f"no layout is called {name_or_axes!r}; known: {known}")
    axes = tuple(name_or_axes)
    for layout in CATALOGUE:
        if layout.axes == axes:
            return layout
    return KVLayout(name="declared", axes=axes)

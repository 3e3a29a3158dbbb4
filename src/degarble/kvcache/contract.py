"""Does a tensor keep the contract of its declared layout? Judged at allocation, before anything is written.

`violations` gives every broken term with both formulas; `validate` raises with all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from degarble.errors import LayoutMismatch
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import KVLayout
from degarble.kvcache.reach import Beyond, beyond
from degarble.kvcache.tensor_facts import TensorFacts

Number = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken term: the rule, the sentence, the numbers. `key` is the place inside a group, such as `strides`."""

    rule: str
    key: str
    message: str
    measured: dict[str, Number]
    bound: dict[str, Number]
    request: str | None = None
    position: int | None = None
    block: int | None = None
    layer: int | None = None


def validate(
    layout: KVLayout,
    geometry: Geometry,
    tensor: Any,
    *,
    dtype: str | None = None,
    index_bits: int = 64,
    stored: Sequence[KVLayout] = (),
) -> TensorFacts:
    """Compare a tensor with its declaration. Raises LayoutMismatch that names every contradiction.

    `stored` are orders in which it may lie in memory (`stored_order.py`); without them only the layout's own.
    """
    facts = tensor if isinstance(tensor, TensorFacts) else TensorFacts.of(tensor)
    found = [*violations(layout, geometry, facts, stored), *index_violations(layout, geometry, facts, index_bits)]
    lines = [f"{one.rule}: {one.message}" for one in found]
    if dtype is not None and facts.dtype != dtype:
        lines.append(f"dtype: declared {dtype}, the tensor has {facts.dtype}")
    if lines:
        raise LayoutMismatch("\n".join([f"layout {layout.name} {list(layout.axes)} is contradicted:", *lines]))
    return facts


def violations(
    layout: KVLayout, geometry: Geometry, facts: TensorFacts, stored: Sequence[KVLayout] = ()
) -> Iterator[Violation]:
    """KVC601: shape, strides from the innermost axis outwards, and the end of the storage.

    Strides may be those of any layout in `stored`, permutations of the axes; the first is the one reported against.
    """
    shape = layout.shape(geometry)
    if facts.shape != shape:
        yield Violation(
            rule="KVC601",
            key="shape",
            message=f"the layout has the shape {_named(layout, shape)}, the tensor {list(facts.shape)}",
            measured={"shape": str(list(facts.shape))},
            bound={"shape": str(list(shape))},
        )
        return
    broken = [_stride_of(order, layout, geometry, facts) for order in stored or (layout,)]
    if broken[0] is not None and None not in broken:
        yield broken[0]
        return
    if facts.storage_elements is not None and not 0 <= facts.offset <= facts.reach < facts.storage_elements:
        yield Violation(
            rule="KVC601",
            key="offset",
            message=f"elements {facts.offset} to {facts.reach} do not fit a storage of {facts.storage_elements}",
            measured={"last_element": facts.reach, "first_element": facts.offset},
            bound={"storage_elements": facts.storage_elements},
        )


def _stride_of(order: KVLayout, layout: KVLayout, geometry: Geometry, facts: TensorFacts) -> Violation | None:
    """The first wrong stride of a tensor with the axes of `layout` and the memory of `order`, from the inside."""
    at = [layout.axes.index(axis) for axis in order.axes]
    is_page_inside = True
    needed, terms = 1, "1"
    for axis, place in reversed(list(zip(order.axes, at, strict=True))):
        size, stride = facts.shape[place], facts.strides[place]
        if size == 1:
            continue
        may_pad = not is_page_inside or "num_blocks" in axis.split("*")
        if stride != needed and not (may_pad and stride > needed):
            return _stride_violation(order, geometry, axis, stride, needed, terms)
        is_page_inside = is_page_inside and "num_blocks" not in axis.split("*")
        needed, terms = stride * size, f"{size}·{stride}"
    return None


def _named(layout: KVLayout, shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(f"{axis}={size}" for axis, size in zip(layout.axes, shape, strict=True)) + "]"


def _stride_violation(
    layout: KVLayout, geometry: Geometry, axis: str, stride: int, needed: int, terms: str
) -> Violation:
    """Both formulas written out; where another known layout's formula gives the stride found, it is named."""
    formula = layout.formula(axis)
    sizes = geometry.sizes()
    numbers = "·".join(str(sizes[atom]) for atom in formula.split("·")) if formula != "1" else "1"
    text = f"stride[{axis}] = {formula} = {numbers} = {needed} by {layout.name}, the tensor has {stride}"
    if needed != _product(numbers):
        text = f"stride[{axis}] must be at least {terms} = {needed} (as the inner axis has it), the tensor has {stride}"
    if stride < needed:
        text += ", so that two coordinates share one element"
    other = _explained_by(geometry, axis, stride, layout)
    if other:
        text += f"; {other}"
    return Violation(
        rule="KVC601", key="strides", message=text, measured={"stride": stride, "axis": axis}, bound={"stride": needed}
    )


def _product(numbers: str) -> int:
    total = 1
    for number in numbers.split("·"):
        total *= int(number)
    return total


def _explained_by(geometry: Geometry, axis: str, stride: int, declared: KVLayout) -> str:
    """`it is num_blocks·block_size·head_dim, the formula of head-major`, or '' if no known layout has that stride."""
    from degarble.kvcache.layout import CATALOGUE

    for layout in CATALOGUE:
        if layout.axes == declared.axes or set(layout.atoms) != set(declared.atoms) or axis not in layout.axes:
            continue
        if layout.strides(geometry)[layout.axes.index(axis)] == stride:
            return f"it is {layout.formula(axis)}, the formula of {layout.name}"
    return ""


def index_violations(layout: KVLayout, geometry: Geometry, facts: TensorFacts, index_bits: int) -> Iterator[Violation]:
    """KVC619: the last element's index in elements and in bytes stays below 2^(bits - 1)."""
    if facts.shape != layout.shape(geometry):
        return
    page_axis = next(at for at, axis in enumerate(layout.axes) if "num_blocks" in axis.split("*"))
    for far in beyond(
        facts.shape,
        facts.strides,
        page_axis,
        offset=facts.offset,
        itemsize=facts.itemsize,
        index_bits=index_bits,
    ):
        yield index_violation(far, facts.shape[page_axis])


def index_violation(far: Beyond, num_blocks: int) -> Violation:
    """KVC619, told the same way of a tensor, a declaration and a trace."""
    bits = far.limit.bit_length() - 1
    blocks: dict[str, Number] = {}
    if far.first_bad_block is not None and far.first_touched is not None:
        blocks = {"first_bad_block": far.first_bad_block, "first_touched": far.first_touched}
    return Violation(
        rule="KVC619",
        key="index_bits",
        message=f"block {far.first_bad_block} is the first whose index passes 2^{bits} {far.unit}: block stride "
        f"{far.page_stride} {far.unit}, {num_blocks} blocks, last index {far.last_index} (declare index_bits 64 if no kernel "
        "is 32-bit)",
        measured={"last_index": far.last_index, "unit": far.unit, **blocks},
        bound={"index_below": far.limit},
        block=far.first_bad_block,
    )

"""How far the index of a cache tensor reaches, and the first block whose index passes the limit (KVC619).

last = offset + Σ (extent − 1) · stride, in elements and in bytes, against 2^(bits − 1) − 1. Pure arithmetic on what is
declared or measured; that a kernel really counts in so many bits only a device shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """An index past the limit."""

    unit: str
    """elements or bytes."""
    last_index: int
    limit: int
    page_stride: int
    first_touched: int | None
    """The first block of which some index lies beyond; None where blocks have no stride."""
    first_bad_block: int | None
    """The first block of which every index lies beyond; where there is none, the first that is touched."""


def beyond(
    shape: Sequence[int],
    strides: Sequence[int] | None,
    page_axis: int,
    *,
    offset: int = 0,
    itemsize: int = 1,
    index_bits: int = 32,
) -> Iterator[Beyond]:
    """Elements, then bytes; neither where every index fits, kernels are 64-bit, or the numbers are none of a tensor.

    Without strides the tensor is taken as dense.
    """
    steps = list(strides) if strides is not None else [prod(shape[at + 1 :]) for at in range(len(shape))]
    is_tensor = len(steps) == len(shape) > page_axis and min(shape, default=0) > 0 and min(steps) >= 0
    if index_bits >= 64 or not is_tensor:
        return
    limit = 1 << (index_bits - 1)
    last = offset + sum((extent - 1) * stride for extent, stride in zip(shape, steps, strict=True))
    for unit, scale, end in (("elements", 1, last), ("bytes", itemsize, last * itemsize + itemsize - 1)):
        if end < limit:
            continue
        page = steps[page_axis] * scale
        inside = end - (shape[page_axis] - 1) * page
        touched = max(0, (limit - 1 - inside) // page + 1) if page else None
        whole = -(-limit // page) if page else None
        yield Beyond(
            unit=unit,
            last_index=last * scale,
            limit=limit,
            page_stride=page,
            first_touched=touched,
            first_bad_block=whole if whole is not None and whole < shape[page_axis] else touched,
        )

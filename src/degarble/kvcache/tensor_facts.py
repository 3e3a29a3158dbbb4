"""What layout contracts need to know of a tensor: shape, strides, item size. Made from numpy, torch, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from degarble.errors import LayoutMismatch


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    """Metadata of one tensor; strides and offset in elements, as torch counts them."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: str = ""
    offset: int = 0
    """Of the first element in its storage."""
    storage_elements: int | None = None
    """Elements of the storage behind it; None if unknown."""

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides):
            raise LayoutMismatch(f"shape {list(self.shape)} and strides {list(self.strides)} differ in length")
        if any(size < 0 for size in self.shape) or self.itemsize < 1:
            raise LayoutMismatch(f"shape {list(self.shape)} with items of {self.itemsize} bytes is no tensor")

    @classmethod
    def of(cls, tensor: Any) -> TensorFacts:
        """Of a numpy array (byte strides) or of a torch tensor (`stride()`, in elements)."""
        itemsize = int(tensor.itemsize if isinstance(getattr(tensor, "itemsize", None), int) else tensor.element_size())
        if callable(getattr(tensor, "stride", None)):
            storage = int(tensor.untyped_storage().nbytes()) // itemsize
            strides = tuple(int(step) for step in tensor.stride())
            offset = int(tensor.storage_offset())
        else:
            if any(step % itemsize for step in tensor.strides):
                raise LayoutMismatch(f"byte strides {tensor.strides} are no multiples of {itemsize}")
            strides, storage, offset = tuple(step // itemsize for step in tensor.strides), None, 0
        return cls(
            shape=tuple(int(size) for size in tensor.shape),
            strides=strides,
            itemsize=itemsize,
            dtype=str(tensor.dtype).removeprefix("torch."),
            offset=offset,
            storage_elements=storage,
        )

    @property
    def reach(self) -> int:
        """Index of the last element that the shape can address, from the first of the storage."""
        return self.offset + sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie in order without gaps; axes of size 1 do not count."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True

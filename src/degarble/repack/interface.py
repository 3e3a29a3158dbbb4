"""What a packed layout and a change of layout are, so that one verifier can prove any of them.

    codes [out, in] --pack--> stored --step--> … --step--> stored --unpack--> codes [out, in]

A layout states its own index formula in `unpack`, as plainly as it can; `pack` is the other way round. A relayout moves
words directly, the way an engine does it, and never calls either: the two descriptions check each other.

Codes are always unsigned fields in [0, 2**num_bits). Signed codes enter as excess 2**(num_bits - 1) or as two's
complement; to a layout both are just fields, to a step that does arithmetic they are not, so the verifier tries both.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.registry import walk

WORD_BITS = 32


class Layout(ABC):
    """One way to store codes [out, in]. Subclasses are found by walking this package."""

    name: ClassVar[str]
    widths: ClassVar[tuple[int, ...]]
    """Bits a code that the layout knows."""

    @abstractmethod
    def granule(self, num_bits: int) -> tuple[int, int]:
        """(out, in) of the smallest matrix that shows every position of a word or tile; sizes are multiples of it."""

    @abstractmethod
    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] uint8 -> stored array. Raises ValueError for sizes that are no multiples of the granule."""

    @abstractmethod
    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """Stored array -> [out, in] uint8. Raises ValueError if it cannot hold that shape."""


StepFunction = Callable[[Array], Array]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One named move inside a relayout."""

    name: str
    function: StepFunction


class Relayout(msgspec.Struct, frozen=True, kw_only=True):
    """From one stored layout to another, as an engine or converter does it."""

    source: str
    target: str
    widths: tuple[int, ...]
    steps: Callable[[int, tuple[int, int]], Sequence[Step]]
    """(num_bits, shape) -> the steps."""
    origin: str
    """Whose relayout it is and where that was read."""

    @property
    def name(self) -> str:
        """`gptq -> marlin`."""
        return f"{self.source} -> {self.target}"


@cache
def layouts() -> dict[str, Layout]:
    """Every layout there is, by name."""
    found: dict[str, Layout] = {}
    for module in walk(importlib.import_module("degarble.repack")):
        for member in vars(module).values():
            if isinstance(member, type) and issubclass(member, Layout) and "name" in member.__dict__:
                found[member.name] = member()
    return dict(sorted(found.items()))


@cache
def relayouts() -> tuple[Relayout, ...]:
    """Every relayout there is, by name."""
    found = [
        member
        for module in walk(importlib.import_module("degarble.repack"))
        for member in getattr(module, "RELAYOUTS", ())
        if isinstance(member, Relayout)
    ]
    return tuple(sorted(found, key=lambda relayout: relayout.name))


def fields_of(words: Array, num_bits: int) -> Array:
    """[..., w] 32-bit words -> [..., w, 32 / bits] uint8 fields, the least significant first."""
    shifts = np.arange(0, WORD_BITS, num_bits, dtype=np.uint32)
    fields = (words.view(np.uint32)[..., None] >> shifts) & np.uint32((1 << num_bits) - 1)
    return np.asarray(fields.astype(np.uint8))


def words_of(fields: Array, num_bits: int) -> Array:
    """Undo `fields_of`: the fields, all below 2**bits, are moved into place and joined with OR."""
    shifts = np.arange(0, WORD_BITS, num_bits, dtype=np.uint32)
    return np.asarray(np.bitwise_or.reduce(fields.astype(np.uint32) << shifts, axis=-1).view(np.int32))


def checked(codes: Array, granule: tuple[int, int], name: str) -> tuple[int, int]:
    """The shape of a code matrix. Raises ValueError if the layout cannot hold it."""
    if codes.ndim != 2 or codes.shape[0] % granule[0] or codes.shape[1] % granule[1]:
        raise ValueError(f"{name} packs multiples of {granule[0]} x {granule[1]}, found {list(codes.shape)}")
    return codes.shape[0], codes.shape[1]


def fitting(stored: Array, shape: tuple[int, ...], dtype: type[np.generic], name: str) -> Array:
    """The stored array if it has this shape and dtype. Raises ValueError otherwise."""
    if stored.shape != shape or stored.dtype != dtype:
        want = f"{np.dtype(dtype).name} {list(shape)}"
        raise ValueError(f"{name}: expected {want}, found {stored.dtype.name} {list(stored.shape)}")
    return stored

"""StoredModule: one module's weight as it lies on disk, the same for every format.

Nothing outside this package mentions a stored suffix. A check asks a StoredModule for its form (what headers prove), a
profiler or fault for its values:

    w[o, i] = (codes[o, i] - zeros[o, g]) * scales[o, g]      with g = group_index[i]

in logical orientation `[out, in]` (or `[experts, out, in]`), whatever the file's axes, packing and order are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array, TensorReader
from degarble.finding import Location
from degarble.formats.affine import dequantize
from degarble.formats.scheme import Scheme

Parts = Mapping[str, TensorInfo]
"""Suffix below the module's name -> tensor, e.g. {"qweight": …, "scales": …}."""

PAYLOAD = "payload"

Axis = tuple[int, int | str]
"""(axis of a stored part counted from the right, codes that share an index along it); see slicing.py."""


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """Headers of one module disagree with each other or with the config."""

    about: str
    """num_bits | group_size | block_grid | zero_point | layout | act_order | dtype | shape"""
    role: str
    """The part whose shape or dtype shows it."""
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What the headers of one module say. Shared by all modules with equal headers and equal declaration."""

    format: str
    """Name of the format file that read it: gptq, awq, fp8_block, …; plain; unknown; companions."""
    scheme: Scheme | None
    """None for plain and unknown."""
    shape: tuple[int, ...] | None
    """Logical shape; None if the headers do not tell."""
    roles: Mapping[str, str]
    """role -> suffix, for the parts that are there."""
    missing: tuple[str, ...] = ()
    """Roles that the format needs and the module lacks."""
    orphaned: tuple[str, ...] = ()
    """Roles that are there without the payload they belong to."""
    contradictions: tuple[Contradiction, ...] = ()

    @property
    def is_quantized(self) -> bool:
        """Whether the payload is codes rather than plain floating-point values."""
        return self.format not in ("plain", "companions", "unknown")


class WeightFormat(ABC):
    """One stored weight layout. Subclasses are found by walking this package; one instance each."""

    name: ClassVar[str]
    roles: ClassVar[Mapping[str, str]]
    """suffix -> role, every part the format may store. Exactly the payload suffixes map to PAYLOAD."""
    missing_names: ClassVar[Mapping[str, str]] = {}
    """role -> suffix to name in messages, where several suffixes carry one role."""
    derived: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """role -> the roles from which `derive` computes it, for a companion that says nothing of its own."""
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {}
    """role -> where its outputs and its inputs lie, for slicing.py; without it, the module is only read whole."""

    @abstractmethod
    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """How sure this format is that it wrote the parts: 0 no, 1 by names, 2 names and config, 3 by shapes."""

    @abstractmethod
    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """Judge headers. `expected` is the architecture's logical shape, where known. Never raises on data."""

    def by_role(self, parts: Parts) -> dict[str, TensorInfo]:
        """The parts by role; unknown suffixes are left out."""
        return {self.roles[suffix]: info for suffix, info in parts.items() if suffix in self.roles}

    def role_suffixes(self, parts: Parts) -> dict[str, str]:
        """role -> suffix for the parts that are there."""
        return {self.roles[suffix]: suffix for suffix in parts if suffix in self.roles}

    def suffix_of(self, role: str) -> str:
        """The suffix a role is stored under, for messages about a missing part."""
        known = (suffix for suffix, its_role in self.roles.items() if its_role == role)
        return self.missing_names.get(role) or next(known, role)

    def derive(self, module: StoredModule, role: str, dtype: str) -> Array:
        """A role of `derived`, as the format stores it, in a stored dtype. Raises ValueError where others forbid it."""
        raise NotImplementedError(f"{self.name} derives nothing")

    def cut(self, modules: Sequence[StoredModule], runs: Sequence[tuple[int, int]]) -> StoredModule | None:
        """What slicing.stack_outputs gives, for a format whose layout `axes` cannot tell; None: by axes."""
        return None

    @abstractmethod
    def codes(self, module: StoredModule) -> Array:
        """[out, in] integer codes (unsigned for packed integers, int8 for int8), or the raw float codes as uint8."""

    @abstractmethod
    def scales(self, module: StoredModule) -> Array:
        """[out, groups] float32; block formats give [row blocks, col blocks]."""

    def zeros(self, module: StoredModule) -> Array | None:
        """[out, groups] int32 in units of codes; None for formats without any."""
        return None

    def group_index(self, module: StoredModule) -> Array | None:
        """[in] int32, the group of each input; None where groups are blocks or a single scale."""
        return None

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32, exactly what the format's own tool computes before its last cast."""
        index = self.group_index(module)
        if index is None:
            raise NotImplementedError(f"{self.name} must override dequantize")
        return dequantize(self.codes(module), self.scales(module), self.zeros(module), index)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """Stored tensors (full name -> array, stored dtype and shape) that carry new values.

        `parts` has keys `codes`, `scales`, `zeros`, `group_index` in the units of the methods above, or names of stored
        roles (`global_scale`, `input_scale`, …) with raw values. Raises ValueError for what the format cannot store.
        """
        raise NotImplementedError(f"{self.name} cannot write values yet")


class StoredModule(msgspec.Struct, frozen=True, kw_only=True, gc=False, eq=False):
    """One module on disk. Cheap, since a checkpoint may have 46,000: values are read only when asked for."""

    name: str
    """As in the file, without the suffix: `model.layers.3.mlp.down_proj`, `blk.3.ffn_down`."""
    canonical: str | None
    """The name in the architecture's vocabulary; None for parts that are not of the text model."""
    template: str
    """`canonical` (or `name`) with `{layer}` and `{expert}` in place of the numbers: equal for peers."""
    layer: int | None
    expert: int | None
    kind: str
    """linear | norm | embedding | head | router | bias | other; `unknown` outside the text model."""
    parts: Parts
    form: Form
    format: WeightFormat
    reader: TensorReader

    def part(self, role: str) -> TensorInfo | None:
        """The stored tensor of a role, if it is there."""
        suffix = self.form.roles.get(role)
        return None if suffix is None else self.parts[suffix]

    def place(self, role: str = PAYLOAD, *, file: str | None = None, key: str | None = None) -> Location:
        """Where a finding about this module (or one part of it) points.

        `file` names another file than the tensor's: that of the config, with the `key` the module contradicts.
        """
        info = self.part(role) or self.any_part
        return Location(
            file=file or info.file, key=key, tensor=info.name, module=self.name, layer=self.layer, expert=self.expert
        )

    def suffix_of(self, role: str) -> str:
        """The suffix a missing or present role has in this format, for messages only."""
        return self.form.roles.get(role) or self.format.suffix_of(role)

    def name_of(self, role: str) -> str:
        """The full name of the tensor that a role has, or would have, beside the payload."""
        if self.payload is None:
            return f"{self.name}.{self.suffix_of(role)}"
        return self.payload.name.removesuffix(self.suffix_of(PAYLOAD)) + self.suffix_of(role)

    def array(self, role: str) -> Array:
        """The stored array of a role, untouched. Raises KeyError if the module lacks it."""
        return self.reader.read(self.parts[self.form.roles[role]])

    def derivable(self) -> tuple[str, ...]:
        """The missing roles, if the format can compute every one of them from the parts that are there; else none."""
        sources = [self.format.derived.get(role, ()) for role in self.form.missing]
        is_all = all(roles and all(self.part(role) is not None for role in roles) for roles in sources)
        return self.form.missing if is_all else ()

    def derive_part(self, role: str, dtype: str) -> Array:
        """See WeightFormat.derive."""
        return self.format.derive(self, role, dtype)

    @property
    def payload(self) -> TensorInfo | None:
        """The tensor with the codes or plain values."""
        return self.part(PAYLOAD)

    @property
    def any_part(self) -> TensorInfo:
        """The payload, or else the first companion: somewhere to point at."""
        return self.payload or next(iter(self.parts.values()))

    def codes(self) -> Array:
        """See WeightFormat.codes."""
        return self.format.codes(self)

    def scales(self) -> Array:
        """See WeightFormat.scales."""
        return self.format.scales(self)

    def zeros(self) -> Array | None:
        """See WeightFormat.zeros."""
        return self.format.zeros(self)

    def group_index(self) -> Array | None:
        """See WeightFormat.group_index."""
        return self.format.group_index(self)

    def dequantize(self) -> Array:
        """See WeightFormat.dequantize."""
        return self.format.dequantize(self)

    def replace(self, **parts: Array) -> dict[str, Array]:
        """See WeightFormat.replace."""
        return self.format.replace(self, parts)

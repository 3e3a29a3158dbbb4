"""What somebody says of a KV cache, as data: layouts of groups, heads, kernels, and records of what was allocated.

Keys of the trace schema's meta line have its meaning, so the first line of a trace is a declaration. Beyond it a
declaration may carry what an engine wrote down: `allocations`, `isolation` and `sequences`, `poison`, `paths`, `head_map`.
JSON, TOML, or JSON lines (the first is read). Unknown keys are ignored, wrong types and sizes are errors with their place.
"""

from __future__ import annotations

import tomllib
from typing import Annotated, Any

import msgspec

from degarble.checkpoint.json_file import parse_json
from degarble.errors import LayoutMismatch, MalformedFile
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import KVLayout, find_layout
from degarble.kvcache.tensor_facts import TensorFacts

MAX_BYTES = 16 << 20
Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Index = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
Axes = Annotated[list[str], msgspec.Meta(min_length=1, max_length=12)]


class GroupDeclaration(msgspec.Struct, kw_only=True):
    """One cache group: layers that share block tables and a layout."""

    g: int = 0
    kind: str = "full"
    layers: list[Index] = []
    owner: list[int] | None = None
    """Parallel to `layers`: whose cache a layer uses."""
    writes: list[Index] | None = None
    """Layers that write to the cache."""
    pointers: list[Index] | None = None
    """Parallel to `layers`: where their storages begin."""
    block_size: Size | None = None
    num_blocks: Size | None = None
    kernel_block_size: Size | None = None
    axes: Axes | None = None
    layout: str | None = None
    shape: Annotated[list[Size], msgspec.Meta(max_length=12)] | None = None
    strides: (
        Annotated[list[Annotated[int, msgspec.Meta(ge=-(1 << 48), le=1 << 48)]], msgspec.Meta(max_length=12)] | None
    ) = None
    stride_order: Annotated[list[int], msgspec.Meta(max_length=12)] | None = None
    """Indices of the axes, outermost in memory first, where strides are those of a permuted view."""
    offset: Index = 0
    storage_elements: Size | None = None
    itemsize: Annotated[int, msgspec.Meta(ge=1, le=16)] | None = None
    parts: list[str] = []
    record: str | None = None
    """Name of a latent record."""
    index_bits: Annotated[int, msgspec.Meta(ge=8, le=64)] = 32


class AccessDeclaration(msgspec.Struct, kw_only=True):
    """How a kernel reads the cache, for KVC613."""

    g: int = 0
    num_tokens: Annotated[int, msgspec.Meta(ge=1, le=1 << 32)] = 1024
    is_group_shared: bool = True
    is_whole_block: bool = False
    sector_bytes: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 32
    min_efficiency: float = 0.9


class AllocationRecord(msgspec.Struct, kw_only=True):
    """One allocation as a checked allocator saw it, for KVC609."""

    name: str
    requested: Size
    reserved: Size
    written: Index
    """Bytes from the beginning up to the last that was written."""


class IsolationRecord(msgspec.Struct, kw_only=True):
    """The policy that is said to hold, for KVC611."""

    classes: list[str]
    control_tokens: dict[str, str]
    """Token id (as text, JSON has no other keys) -> class."""


class SequenceRecord(msgspec.Struct, kw_only=True):
    """A sequence and where its blocks begin."""

    request: str
    ids: list[int]
    edges: list[Index]


class PoisonRecord(msgspec.Struct, kw_only=True):
    """One run with rows past the length replaced, for KVC620."""

    fill: str
    num_tokens: Size
    block_size: Size
    max_abs_difference: float | None
    """Between the outputs with and without the poison; None where the output was not finite."""
    where: str = "tail"


class WritePath(msgspec.Struct, kw_only=True):
    """How one path quantises what it writes to the cache, for KVC628."""

    path: str
    layer: Index
    part: str
    transform: str = "none"
    seed: int | None = None
    num_bits: int | None = None
    group_size: int | None = None
    codes: str | None = None
    """Digest of the codes of a probe token that every path was given."""


class KVDeclaration(msgspec.Struct, kw_only=True):
    """The whole file."""

    num_heads: Size | None = None
    num_kv_heads: Size | None = None
    head_dim: Size | None = None
    kv_lora_rank: Size | None = None
    qk_rope_head_dim: Size | None = None
    block_size: Size | None = None
    num_blocks: Size | None = None
    groups: Annotated[list[GroupDeclaration], msgspec.Meta(max_length=4096)] = []
    tp: Size = 1
    head_map: list[list[int]] | None = None
    """Rank -> KV heads that it holds."""
    access: list[AccessDeclaration] | None = None
    allocations: list[AllocationRecord] | None = None
    isolation: IsolationRecord | None = None
    sequences: list[SequenceRecord] | None = None
    poison: list[PoisonRecord] | None = None
    paths: list[WritePath] | None = None

    @property
    def local_kv_heads(self) -> int | None:
        """KV heads of one rank."""
        return None if self.num_kv_heads is None else max(1, self.num_kv_heads // max(1, self.tp))

    @property
    def latent(self) -> int:
        """Elements of a latent record; 0 without MLA."""
        return (self.kv_lora_rank or 0) + (self.qk_rope_head_dim or 0)

    def geometry(self, group: GroupDeclaration) -> Geometry:
        """Sizes of a group. Raises LayoutMismatch naming the size that is not declared."""
        block_size, num_blocks = group.block_size or self.block_size, group.num_blocks or self.num_blocks
        if block_size is None or num_blocks is None:
            raise LayoutMismatch("block_size and num_blocks are needed to judge a layout, and are not declared")
        latent = self.latent
        if group.record is not None or (latent and group.itemsize == 1):
            latent = _record_width(group) or latent
        return Geometry(
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=self.local_kv_heads or 1,
            head_dim=self.head_dim or 0,
            latent=latent,
            num_layers=max(1, len(group.layers)),
            x=max(1, 16 // (group.itemsize or 2)),
        )


def _record_width(group: GroupDeclaration) -> int | None:
    """A packed record is an axis of bytes, as wide as the shape says."""
    if group.itemsize != 1 or not group.shape or (group.axes is not None and group.axes[-1] != "latent"):
        return None
    return group.shape[-1]


def layout_of(group: GroupDeclaration) -> KVLayout | None:
    """The declared layout: by its axes, else by its name if that is one of the catalogue; None if neither is known."""
    if group.axes is not None:
        return find_layout(group.axes)
    try:
        return None if group.layout is None else find_layout(group.layout)
    except LayoutMismatch:
        return None


def facts_of(group: GroupDeclaration) -> TensorFacts | None:
    """Shape and strides as declared; None where they are not."""
    if group.shape is None or group.strides is None:
        return None
    return TensorFacts(
        shape=tuple(group.shape),
        strides=tuple(group.strides),
        itemsize=group.itemsize or 2,
        offset=group.offset,
        storage_elements=group.storage_elements,
    )


def parse_declaration(data: bytes, name: str) -> KVDeclaration:
    """Read a declaration. Raises MalformedFile with the place that is wrong."""
    if len(data) > MAX_BYTES and not name.endswith(".jsonl"):
        raise MalformedFile(name, "size", f"at most {MAX_BYTES} bytes", f"{len(data)} bytes")
    value = _decoded(data, name)
    if not isinstance(value, dict):
        raise MalformedFile(name, "byte 0", "an object", f"a {type(value).__name__}")
    try:
        declaration = msgspec.convert(value, KVDeclaration)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$")
        raise MalformedFile(name, place.strip("`.") or "the document", "a value as documented", said) from None
    except RecursionError:
        raise MalformedFile(name, "byte 0", "a document of ordinary depth", "deep nesting") from None
    if all(getattr(declaration, key) in (None, []) for key in KVDeclaration.__struct_fields__ if key != "tp"):
        raise MalformedFile(
            name, "the document", "keys of a KV-cache declaration (groups, allocations, …)", "none of them"
        )
    return declaration


def _decoded(data: bytes, name: str) -> Any:
    if name.endswith(".toml"):
        try:
            return tomllib.loads(data.decode("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedFile(name, "the document", "TOML", str(error)[:200]) from None
    if name.endswith(".jsonl"):
        data = data.split(b"\n", 1)[0]
        if len(data) > MAX_BYTES:
            raise MalformedFile(name, "line 0", f"at most {MAX_BYTES} bytes", f"{len(data)} bytes")
    return parse_json(data, name)

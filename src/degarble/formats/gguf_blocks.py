"""GGUF block types: codes and scales of 32 or 256 values interleaved in one run of bytes.

    row of a Q8_0 weight    | d f16 | 32 x int8 | d f16 | 32 x int8 | …             w = code * d
    block of Q4_0           | d f16 | 16 bytes |   low nibbles are values 0-15, high ones 16-31; w = (code - 8) * d
    block of Q4_K, Q5_K     | d f16 | dmin f16 | 12 bytes: eight 6-bit scales and minima | codes |
    block of Q2_K           | scales | codes | d f16 | dmin f16 |
    block of Q3_K, Q6_K     | codes | scales | d f16 |                              d is LAST
    block of MXFP4          | e u8 | 16 bytes |       halves as in Q4_0, not pairs as in other MXFP4 files

All values come from `gguf.quants.dequantize`, the format's own reference. What is taken apart here is what faults and
statistics need: the scale `d` of each block (a NaN there ruins 32 or 256 weights), and the codes of Q8_0 and Q4_0.
Sources: gguf-py `quants.py`, ggml `ggml-common.h`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.tensor_data import Array
from degarble.formats import e8m0
from degarble.formats.agreement import shape_contradiction
from degarble.formats.gguf_types import GGML_TYPE_BY_NAME, GgmlType
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.scheme import Scheme

PREFIX = "GGUF:"

KINDS: Mapping[str, tuple[str, int, int]] = {
    "Q1_0": ("int", 1, 128),
    "Q2_K": ("int", 2, 16),
    "Q3_K": ("int", 3, 16),
    "Q4_0": ("int", 4, 32),
    "Q4_1": ("int", 4, 32),
    "Q4_K": ("int", 4, 32),
    "Q5_0": ("int", 5, 32),
    "Q5_1": ("int", 5, 32),
    "Q5_K": ("int", 5, 32),
    "Q6_K": ("int", 6, 16),
    "Q8_0": ("int", 8, 32),
    "Q8_1": ("int", 8, 32),
    "Q8_K": ("int", 8, 256),
    "TQ1_0": ("int", 2, 256),
    "TQ2_0": ("int", 2, 256),
    "IQ1_S": ("codebook", 1, 32),
    "IQ1_M": ("codebook", 1, 16),
    "IQ2_XXS": ("codebook", 2, 32),
    "IQ2_XS": ("codebook", 2, 16),
    "IQ2_S": ("codebook", 2, 16),
    "IQ3_XXS": ("codebook", 3, 32),
    "IQ3_S": ("codebook", 3, 32),
    "IQ4_NL": ("codebook", 4, 32),
    "IQ4_XS": ("codebook", 4, 32),
    "MXFP4": ("float", 4, 32),
    "NVFP4": ("float", 4, 16),
}
"""type -> kind of number, nominal bits, values that share the innermost scale."""

DELTA_AT: Mapping[str, int] = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "IQ4_NL", "IQ4_XS"), 0),
    **dict.fromkeys(("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), 0),
    "Q2_K": 80,
    "Q3_K": 108,
    "Q6_K": 208,
    "TQ1_0": 52,
    "TQ2_0": 64,
}
"""Byte offset of the fp16 `d` inside a block. IQ1_M spreads its d over four nibbles and is left out."""


ROW_BLOCKS = 256
"""Blocks that gguf is given as one row; it takes 16 rows at a time, and short ones cost it as much as long ones."""


def blocks_of(raw: Array, kind: GgmlType) -> Array:
    """[bytes] -> [blocks, bytes of a block]. Raises ValueError for a broken last block."""
    if raw.size % kind.type_size:
        raise ValueError(f"{raw.size} bytes are not whole blocks of {kind.type_size}")
    return raw.reshape(-1, kind.type_size)


def dequantize(raw: Array, kind: GgmlType, shape: tuple[int, ...]) -> Array:
    """Stored bytes -> float32 of `shape`. Raises ValueError for a type that gguf cannot read."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize as by_gguf

    blocks = blocks_of(raw, kind)
    if blocks.shape[0] * kind.block_size != num_elements(shape):
        raise ValueError(f"{blocks.shape[0]} blocks of {kind.block_size} are not {list(shape)}")
    rows = next(rows for rows in range(max(1, len(blocks) // ROW_BLOCKS), 0, -1) if len(blocks) % rows == 0)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            values = by_gguf(np.ascontiguousarray(blocks).reshape(rows, -1), GGMLQuantizationType[kind.name])
    except NotImplementedError:
        raise ValueError(f"gguf cannot dequantise {kind.name}") from None
    return np.asarray(values, np.float32).reshape(shape)


def nibbles(blocks: Array) -> Array:
    """[blocks, 16] bytes -> [blocks, 32] codes: all low nibbles, then all high ones."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=-1)


def pack_nibbles(codes: Array) -> Array:
    """Undo `nibbles`."""
    half = codes.shape[-1] // 2
    return np.asarray(codes[..., :half] | codes[..., half:] << 4)


class GgufBlocks(WeightFormat):
    """Every ggml type that has blocks."""

    name: ClassVar[str] = "gguf"
    roles: ClassVar[Mapping[str, str]] = {"weight": PAYLOAD, "bias": "bias"}
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {PAYLOAD: ((-2, 1), (-1, "ggml"))}

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """By dtype."""
        payload = parts.get("weight")
        return 3 if payload is not None and _kind(payload) is not None else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        payload = parts["weight"]
        label = payload.dtype.removeprefix(PREFIX)
        number, bits, group = KINDS.get(label, ("int", None, None))
        scheme = Scheme(method="gguf", format=label, type=number, num_bits=bits, strategy="group", group_size=group)
        return Form(
            format=self.name,
            scheme=scheme,
            shape=payload.shape,
            roles=self.role_suffixes(parts),
            contradictions=tuple(_contradictions(payload)),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] int8 for Q8_0, uint8 for Q4_0; other types do not hold one code a value: ValueError."""
        blocks, kind = _blocks(module)
        if kind.name == "Q8_0":
            return np.ascontiguousarray(blocks[:, 2:]).view(np.int8).reshape(_shape(module))
        if kind.name == "Q4_0":
            return nibbles(blocks[:, 2:]).reshape(_shape(module))
        raise ValueError(f"{module.name}: codes of {kind.name} cannot be told apart from its inner scales")

    def scales(self, module: StoredModule) -> Array:
        """[out, blocks] float32: `d` of every block. Inner scales and minima are not in it."""
        blocks, kind = _blocks(module)
        shape = _shape(module)
        if kind.name == "MXFP4":
            deltas = e8m0.decode(blocks[:, 0])
        elif kind.name in DELTA_AT:
            at = DELTA_AT[kind.name]
            deltas = np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)
        else:
            raise ValueError(f"{module.name}: blocks of {kind.name} have no single scale")
        return deltas.reshape(*shape[:-1], -1)

    def zeros(self, module: StoredModule) -> Array | None:
        """8 for Q4_0; None elsewhere."""
        _, kind = _blocks(module)
        if kind.name != "Q4_0":
            return None
        return np.full((*_shape(module)[:-1], _shape(module)[-1] // kind.block_size), 8, np.int32)

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32: the block of each input."""
        _, kind = _blocks(module)
        return (np.arange(_shape(module)[-1]) // kind.block_size).astype(np.int32)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32 by gguf. Raises ValueError for a type that gguf cannot read."""
        payload = module.parts["weight"]
        kind = _kind(payload)
        if kind is None:
            raise ValueError(f"{payload.name}: {payload.dtype} has no blocks")
        return dequantize(module.reader.raw(payload), kind, payload.shape)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`scales` (d of each block), `codes` where they can be read; the result is the tensor's bytes, uint8."""
        blocks, kind = _blocks(module)
        new = blocks.copy()
        if unknown := set(parts) - {"codes", "scales"}:
            raise ValueError(f"{module.name}: {kind.name} has no {sorted(unknown)[0]} of its own")
        if "scales" in parts and kind.name == "MXFP4":
            new[:, 0] = e8m0.encode(parts["scales"]).reshape(-1)
        elif "scales" in parts:
            if kind.name not in DELTA_AT:
                raise ValueError(f"{module.name}: blocks of {kind.name} have no single scale")
            at = DELTA_AT[kind.name]
            new[:, at : at + 2] = parts["scales"].astype("<f2").reshape(-1, 1).view(np.uint8)
        if "codes" in parts:
            new[:, 2:] = _code_bytes(parts["codes"], kind, module.name)
        return {module.parts["weight"].name: new.reshape(-1)}


def _code_bytes(codes: Array, kind: GgmlType, name: str) -> Array:
    if kind.name == "Q8_0":
        return codes.astype(np.int8).reshape(-1, 32).view(np.uint8)
    if kind.name == "Q4_0" and int(codes.min()) >= 0 and int(codes.max()) <= 15:
        return pack_nibbles(codes.astype(np.uint8).reshape(-1, 32))
    raise ValueError(f"{name}: these codes cannot be written into {kind.name}")


def _kind(payload: TensorInfo) -> GgmlType | None:
    """The block type of a tensor; None for plain types and for other containers."""
    if not payload.dtype.startswith(PREFIX):
        return None
    kind = GGML_TYPE_BY_NAME.get(payload.dtype.removeprefix(PREFIX))
    return kind if kind is not None and kind.block_size > 1 else None


def _blocks(module: StoredModule) -> tuple[Array, GgmlType]:
    payload = module.parts["weight"]
    kind = _kind(payload)
    if kind is None:
        raise ValueError(f"{payload.name}: {payload.dtype} has no blocks")
    return blocks_of(module.reader.raw(payload), kind), kind


def _shape(module: StoredModule) -> tuple[int, ...]:
    return module.parts["weight"].shape


def _contradictions(payload: TensorInfo) -> Iterator[Contradiction]:
    kind = _kind(payload)
    if kind is None:
        return
    columns = payload.shape[-1] if payload.shape else 0
    if columns <= 0 or columns % kind.block_size:
        yield shape_contradiction("shape", PAYLOAD, f"rows of a multiple of {kind.block_size} values", payload)
    elif payload.nbytes * kind.block_size != num_elements(payload.shape) * kind.type_size:
        want = num_elements(payload.shape) // kind.block_size * kind.type_size
        yield Contradiction(
            about="shape",
            role=PAYLOAD,
            expected=f"{want} bytes for {list(payload.shape)}",
            found=f"{payload.nbytes} bytes",
        )

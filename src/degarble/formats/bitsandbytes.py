"""bitsandbytes in 4 bits: a codebook (NF4, FP4) over the flattened weight.

Blocks of 64 values in reading order, two codes a byte, the HIGH nibble first:

    weight                                      U8   [out * in / 2, 1]    any dtype of `bnb_4bit_quant_storage`
    weight.quant_map                            F32  [16]                 code -> value in [-1, 1]
    weight.absmax                               F32  [blocks]             or U8, if quantised once more:
    weight.nested_absmax                        F32  [blocks / 256]
    weight.nested_quant_map                     F32  [256]
    weight.quant_state.bitsandbytes__nf4|fp4    U8   JSON: shape, blocksize, dtype, nested_offset, nested_blocksize

    absmax[b] = nested_quant_map[byte[b]] * nested_absmax[b // 256] + nested_offset
    w.flat[k] = quant_map[code[k]] * absmax[k // 64]

The shape stands in the JSON only: headers alone cannot tell [256, 512] from [512, 256].

LLM.int8 is in bitsandbytes_int8.py. Source: bitsandbytes `functional.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import shape_contradiction
from degarble.formats.float_agreement import disagreements, dtype_contradictions
from degarble.formats.in_memory import with_arrays
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"bitsandbytes"})
STATE = "weight.quant_state.bitsandbytes__"
NESTED_BLOCK = 256
MAX_STATE_BYTES = 65_536


class QuantState(msgspec.Struct, frozen=True):
    """The JSON beside a 4-bit weight."""

    shape: tuple[int, ...]
    blocksize: int
    quant_type: str = ""
    nested_blocksize: int = NESTED_BLOCK
    nested_offset: float = 0.0


def unpack(packed: Array) -> Array:
    """Bytes -> codes 0..15 in reading order, high nibble first."""
    raw = np.ascontiguousarray(packed).view(np.uint8).reshape(-1)
    return np.stack([raw >> 4, raw & 15], axis=-1).reshape(-1)


def pack(codes: Array) -> Array:
    """Undo `unpack`; an odd count is padded with a zero code. Raises ValueError for a code above 15."""
    if codes.size and (int(codes.min()) < 0 or int(codes.max()) > 15):
        raise ValueError(f"codes must be in [0, 16), found {codes.min()}..{codes.max()}")
    flat = codes.reshape(-1).astype(np.uint8)
    flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
    return np.asarray(flat[0::2] << 4 | flat[1::2])


def quantize(weight: Array, quant_map: Array, blocksize: int = 64) -> tuple[Array, Array]:
    """[out, in] -> nearest codes [out, in] uint8 and absmax [blocks] float32. The last block may be short."""
    flat = weight.astype(np.float32).reshape(-1)
    blocks = -(-flat.size // blocksize)
    padded = np.append(flat, np.zeros(blocks * blocksize - flat.size, np.float32)).reshape(blocks, blocksize)
    absmax = np.abs(padded).max(axis=1)
    scaled = padded / np.where(absmax > 0, absmax, np.float32(1))[:, None]
    order = np.argsort(quant_map)
    middles = (quant_map[order][1:] + quant_map[order][:-1]) / 2
    codes = order[np.searchsorted(middles, scaled)].astype(np.uint8)
    return codes.reshape(-1)[: flat.size].reshape(weight.shape), absmax


def dequantize(codes: Array, quant_map: Array, absmax: Array, blocksize: int = 64) -> Array:
    """Codes of any shape -> float32 of that shape."""
    scales = np.repeat(absmax.astype(np.float32), blocksize)[: codes.size].reshape(codes.shape)
    return np.asarray(quant_map.astype(np.float32)[codes] * scales)


def dequantize_absmax(codes: Array, quant_map: Array, absmax: Array, offset: float, blocksize: int) -> Array:
    """Double quantisation undone: uint8 [blocks] -> float32 [blocks]."""
    scales = np.repeat(absmax.astype(np.float32), blocksize)[: codes.size]
    return np.asarray(quant_map.astype(np.float32)[codes] * scales + np.float32(offset))


def quantize_absmax(wanted: Array, quant_map: Array, absmax: Array, offset: float, blocksize: int) -> Array:
    """For every block the byte whose value is nearest to the wanted one: float32 [blocks] -> uint8 [blocks]."""
    codes = np.empty(wanted.size, np.uint8)
    every = np.arange(256, dtype=np.uint8)
    for start in range(0, wanted.size, blocksize):
        part = slice(start, start + blocksize)
        table = dequantize_absmax(every, quant_map, absmax[start // blocksize].reshape(1), offset, 256)
        codes[part] = np.abs(table - wanted[part, None]).argmin(axis=1)
    return codes


class Bitsandbytes4bit(WeightFormat):
    """NF4 and FP4, with and without double quantisation."""

    name: ClassVar[str] = "bitsandbytes_4bit"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight.absmax": "scale",
        "weight.quant_map": "codebook",
        "weight.nested_absmax": "nested_scale",
        "weight.nested_quant_map": "nested_codebook",
        STATE + "nf4": "quant_state",
        STATE + "fp4": "quant_state",
        "bias": "bias",
    }

    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {PAYLOAD: ((-2, 1), None)}

    def cut(self, modules: Sequence[StoredModule], runs: Sequence[tuple[int, int]]) -> StoredModule | None:
        """Rows with their absmax in full, and a quant state of their own. Raises ValueError where blocks cross rows."""
        first, state = modules[0], _state(modules[0])
        wanted = (runs, first.array("codebook").tobytes(), state.shape, state.blocksize)
        if len(state.shape) != 2 or state.shape[-1] % state.blocksize:
            raise ValueError(f"{first.name}: blocks of {state.blocksize} run across the ends of rows")
        payload, absmax = [], []
        for module in modules:
            own = _state(module)
            if (runs, module.array("codebook").tobytes(), own.shape, own.blocksize) != wanted:
                raise ValueError(f"{module.name}: not the quant state of {first.name}")
            rows = (self._raw(module).reshape(own.shape[0], -1), self.absmax(module).reshape(own.shape[0], -1))
            for start, stop in runs:
                payload.append(rows[0][start:stop])
                absmax.append(rows[1][start:stop])
        shape = (sum(map(len, payload)), state.shape[-1])
        said = msgspec.json.encode({"shape": shape, "blocksize": state.blocksize})
        arrays = {
            PAYLOAD: ("U8", np.concatenate(payload).reshape(-1, 1)),
            "scale": ("F32", np.concatenate(absmax).astype(np.float32).reshape(-1)),
            "codebook": ("F32", first.array("codebook").astype(np.float32)),
            "quant_state": ("U8", np.frombuffer(said, np.uint8)),
        }
        return with_arrays(first, arrays, shape)

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """By the parts below `weight.`; alone, by a column of bytes under a config that says 4 bits."""
        payload = parts.get("weight")
        if payload is None:
            return 0
        if any(suffix.startswith("weight.") for suffix in parts if suffix in self.roles):
            return 3
        column = payload.dtype == "U8" and len(payload.shape) == 2 and payload.shape[1] == 1
        return 2 if column and declared is not None and declared.method in METHODS and declared.num_bits != 8 else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form. The shape is the expected one if its number of values is right."""
        by_role = self.by_role(parts)
        count = by_role[PAYLOAD].nbytes * 2
        nested = self._is_nested(by_role, declared)
        kind = "fp4" if STATE + "fp4" in parts else "nf4" if STATE + "nf4" in parts else None
        scheme = Scheme(
            method="bitsandbytes",
            format=kind if kind is None or not nested else f"{kind}-nested",
            type="codebook",
            num_bits=4,
            strategy="group",
            group_size=_blocksize(count, by_role.get("scale")),
        )
        fits = expected is not None and num_elements(expected) == count
        needed = ("scale", "codebook", "quant_state", *(("nested_scale", "nested_codebook") if nested else ()))
        return Form(
            format=self.name,
            scheme=scheme,
            shape=expected if fits else None,
            roles=self.role_suffixes(parts),
            missing=tuple(role for role in needed if role not in by_role),
            contradictions=tuple(self._contradictions(by_role, declared, scheme, expected)),
        )

    def _is_nested(self, by_role: Mapping[str, TensorInfo], declared: Scheme | None) -> bool:
        if "scale" in by_role:
            return by_role["scale"].dtype == "U8"
        said = declared is not None and (declared.format or "").endswith("-nested")
        return said or "nested_scale" in by_role or "nested_codebook" in by_role

    def _contradictions(
        self,
        by_role: Mapping[str, TensorInfo],
        declared: Scheme | None,
        scheme: Scheme,
        expected: tuple[int, ...] | None,
    ) -> Iterator[Contradiction]:
        payload, scale = by_role[PAYLOAD], by_role.get("scale")
        yield from disagreements(declared, scheme, METHODS)
        said, found = (declared.format if declared is not None else None) or "", scheme.format or ""
        if said[:3] != found[:3] and said and found:
            yield Contradiction(about="dtype", role="quant_state", expected=said[:3], found=found[:3])
        yield from dtype_contradictions(by_role, {"scale": frozenset({"U8", "F32", "F16", "BF16"})})
        if expected is not None and num_elements(expected) != payload.nbytes * 2:
            yield shape_contradiction("shape", PAYLOAD, f"{num_elements(expected)} codes for {list(expected)}", payload)
        if scale is not None and scheme.group_size is None:
            want = f"blocks of a power of two of {payload.nbytes * 2} codes"
            yield shape_contradiction("group_size", "scale", want, scale)
        for role, size in (("codebook", 16), ("nested_codebook", 256)):
            if role in by_role and num_elements(by_role[role].shape) != size:
                yield shape_contradiction("shape", role, f"[{size}]", by_role[role])
        nested = by_role.get("nested_scale")
        if nested is not None and scale is not None:
            blocks = -(-num_elements(scale.shape) // NESTED_BLOCK)
            if num_elements(nested.shape) != blocks:
                yield shape_contradiction("group_size", "nested_scale", f"[{blocks}]", nested)

    def codes(self, module: StoredModule) -> Array:
        """[out, in] codes 0..15, in the shape that the quant state gives."""
        codes, shape = unpack(self._raw(module)), _state(module).shape
        size = num_elements(shape)
        if size != codes.size and size + 1 != codes.size:
            raise ValueError(f"{module.name}: {codes.size} codes do not fill the quant state's shape {list(shape)}")
        return codes[:size].reshape(shape)

    def _raw(self, module: StoredModule) -> Array:
        return module.reader.raw(module.parts[module.form.roles[PAYLOAD]])

    def absmax(self, module: StoredModule) -> Array:
        """[blocks] float32, double quantisation undone."""
        stored, state = module.array("scale").reshape(-1), _state(module)
        if stored.dtype != np.uint8:
            return stored.astype(np.float32)
        return dequantize_absmax(stored, *_nested(module, stored.size, state))

    def scales(self, module: StoredModule) -> Array:
        """[out, in / blocksize] float32; [1, blocks] where blocks run across the ends of rows."""
        state, absmax = _state(module), self.absmax(module)
        aligned = len(state.shape) >= 2 and state.shape[-1] % state.blocksize == 0
        return absmax.reshape(*state.shape[:-1], -1) if aligned else absmax[None]

    def group_index(self, module: StoredModule) -> Array | None:
        """[in] int32; None where blocks run across the ends of rows."""
        state = _state(module)
        if state.shape[-1] % state.blocksize:
            return None
        return (np.arange(state.shape[-1]) // state.blocksize).astype(np.int32)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32."""
        codes, absmax, blocksize = self.codes(module), self.absmax(module), _state(module).blocksize
        if absmax.size * blocksize < codes.size:
            raise ValueError(f"{module.name}: {absmax.size} blocks of {blocksize} cannot cover {codes.size} values")
        return dequantize(codes, _table(module, "codebook", 16), absmax, blocksize)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` 0..15, `scales` as given by `scales()`; other keys are roles whose stored values are given."""
        new = dict(parts)
        if "scales" in new:
            scales = new.pop("scales").reshape(-1).astype(np.float32)
            if module.array("scale").dtype == np.uint8:
                new["scale"] = quantize_absmax(scales, *_nested(module, scales.size, _state(module)))
            else:
                new["scale"] = scales
        if "codes" in new:
            packed, dtype = pack(new.pop("codes")), module.array(PAYLOAD).dtype
            new[PAYLOAD] = packed.view(dtype)
        return rewrite(module, new)


def _state(module: StoredModule) -> QuantState:
    """The quant state; ValueError if it is absent, not JSON, or impossible."""
    info = module.part("quant_state")
    if info is None or info.nbytes > MAX_STATE_BYTES:
        raise ValueError(f"{module.name}: no quant state, so neither shape nor block size are known")
    try:
        state = msgspec.json.decode(module.reader.raw(info).tobytes(), type=QuantState)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{info.name}: not a quant state: {error}") from None
    if not state.shape or min(state.shape) <= 0 or min(state.blocksize, state.nested_blocksize) <= 0:
        raise ValueError(f"{info.name}: impossible shape {list(state.shape)} or block size {state.blocksize}")
    return state


def _nested(module: StoredModule, blocks: int, state: QuantState) -> tuple[Array, Array, float, int]:
    """Codebook, absmax, offset and block size of the second quantisation."""
    absmax = module.array("nested_scale").reshape(-1)
    if absmax.size * state.nested_blocksize < blocks:
        raise ValueError(f"{module.name}: {absmax.size} nested scales cannot cover {blocks} blocks")
    return _table(module, "nested_codebook", 256), absmax, state.nested_offset, state.nested_blocksize


def _table(module: StoredModule, role: str, size: int) -> Array:
    table = module.array(role).reshape(-1)
    if table.size != size:
        raise ValueError(f"{module.name}: a {role} of {table.size} values, {size} are needed")
    return table


def _blocksize(count: int, scale: TensorInfo | None) -> int | None:
    """The power of two that cuts `count` codes into as many blocks as there are scales."""
    if scale is None:
        return None
    blocks = num_elements(scale.shape)
    return next((size for size in (64, 128, 256, 512, 1024, 2048, 4096, 32) if -(-count // size) == blocks), None)

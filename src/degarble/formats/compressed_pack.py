"""compressed-tensors `pack-quantized`: 1 to 8 bits in one dense stream along the input axis, excess 2**(bits - 1).

    weight_packed      int32 [out, ceil(in * bits / 32)]        31 | i+7 | i+6 | … | i+1 | i | 0     (4 bits)
    weight_scale       bf16  [out, groups]                      or [out, 1] a channel, [1] a tensor
    weight_zero_point  int32 [ceil(out * bits / 32), groups]    packed along out; only if asymmetric
    weight_shape       int64 [2]                                out, in: the packed width does not tell `in`
    weight_g_idx       int32 [in]                               only with actorder = group (older versions)

    w[o, i] = (code[o, i] - zero[o, g]) * scale[o, g]           code = signed value + 2**(bits - 1), zero alike

Symmetric: zero is 2**(bits - 1) everywhere. Experts may be stacked: `[experts, out, …]`, each packed as a matrix of its
own. Codes of widths that do not divide 32 straddle words, 32 codes fill exactly `bits` words. Old versions stored the
zero points unpacked as int8; such a file is read here and reported. Source: compressed-tensors
`compressors/pack_quantized`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import group_of
from degarble.formats.affine import quantize as quantize
from degarble.formats.agreement import bits_of, shape_of
from degarble.formats.integer_agreement import (
    INTEGERS,
    SCALE_DTYPES,
    WORDS,
    absent,
    disagreements,
    grouping,
    malformed,
    needed_roles,
    part_contradictions,
    pick_width,
    stored_scheme,
    widths_for,
)
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.packing import WORD_BITS, num_words, pack_words, unpack_words
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"compressed-tensors"})
LABELS = ("pack-quantized", "mixed-precision")
"""What a config may call this layout; `mixed-precision` leaves it to the groups."""


def unpack_zeros(words: Array, num_bits: int, out_features: int) -> Array:
    """[…, ceil(out * bits / 32), groups] words -> […, out, groups] int32."""
    along = np.ascontiguousarray(np.swapaxes(words, -1, -2))
    return np.ascontiguousarray(np.swapaxes(unpack_words(along, num_bits, out_features), -1, -2)).astype(np.int32)


def pack_zeros(zeros: Array, num_bits: int) -> Array:
    """[…, out, groups] -> […, ceil(out * bits / 32), groups] words."""
    return np.ascontiguousarray(np.swapaxes(pack_words(np.swapaxes(zeros, -1, -2), num_bits), -1, -2))


class CompressedPack(WeightFormat):
    """`pack-quantized`, the W4A16 form of llm-compressor."""

    name: ClassVar[str] = "compressed_pack"
    roles: ClassVar[Mapping[str, str]] = {
        "weight_packed": PAYLOAD,
        "weight_scale": "scale",
        "weight_zero_point": "zero_point",
        "weight_shape": "shape",
        "weight_g_idx": "g_idx",
        "input_scale": "input_scale",
        "input_zero_point": "input_zero_point",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, "words")),
        "scale": ((-2, 1), (-1, "group")),
        "zero_point": ((-2, "words"), (-1, "group")),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """32-bit words; packed bytes belong to NVFP4 and MXFP4, and `meta` to the 2:4 sparse Marlin layout."""
        payload = parts.get("weight_packed")
        if payload is None or "meta" in parts or payload.dtype in INTEGERS - WORDS:
            return 0
        is_said = declared is not None and declared.method in METHODS and declared.type == "int"
        if declared is not None and declared.format == "marlin-24":
            return 0
        if payload.dtype in WORDS and ("weight_scale" in parts or "weight_shape" in parts):
            return 3
        return 2 if is_said else 1 if payload.dtype in WORDS else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form. `in` is exact where the architecture tells it, else rounded up to whole words."""
        payload = parts["weight_packed"]
        needed = needed_roles(declared, "scale", "shape", asymmetric=("zero_point",))
        if len(payload.shape) not in (2, 3) or payload.dtype not in WORDS:
            text = "I32 [out, in * bits / 32]"
            return malformed(
                self, parts, declared, method="compressed-tensors", methods=METHODS, needed=needed, expected=text
            )
        num_bits = self._num_bits(parts, declared, expected)
        in_features = _in_features(payload.shape[-1], num_bits, expected)
        groups = groups_of(parts.get("weight_scale"), payload.shape[:-1])
        strategy, group_size = strategy_of(parts.get("weight_scale"), in_features, groups, declared)
        scheme = stored_scheme(
            declared, method="compressed-tensors", num_bits=num_bits, strategy=strategy, group_size=group_size
        )
        found = disagreements(declared, scheme, methods=METHODS, labels=LABELS)
        return Form(
            format=self.name,
            scheme=scheme,
            shape=(*payload.shape[:-1], in_features) if in_features is not None else None,
            roles=self.role_suffixes(parts),
            missing=absent(needed, self.by_role(parts)),
            contradictions=(*found, *_contradictions(parts, num_bits, in_features, groups, strategy)),
        )

    def _num_bits(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> int | None:
        shape, zeros = parts["weight_packed"].shape, parts.get("weight_zero_point")
        evidence = []
        if zeros is not None and zeros.dtype in WORDS and len(zeros.shape) == len(shape):
            evidence.append(widths_for(shape[-2], zeros.shape[-2]))
        if expected:
            evidence.append(widths_for(expected[-1], shape[-1]))
        return pick_width(evidence, declared)

    def codes(self, module: StoredModule) -> Array:
        """[out, in] unsigned codes. `weight_shape` decides how many of the packed codes are real."""
        return unpack_words(module.array(PAYLOAD), bits_of(module), _columns(module))

    def scales(self, module: StoredModule) -> Array:
        """[out, groups] float32; a single scale is repeated for every row."""
        return rowwise(module.array("scale").astype(np.float32), shape_of(module)[:-1])

    def zeros(self, module: StoredModule) -> Array:
        """[out, groups] int32; 2**(bits - 1) everywhere if symmetric."""
        middle, part = 1 << (bits_of(module) - 1), module.part("zero_point")
        if part is None:
            return np.full(self.scales(module).shape, middle, np.int32)
        if part.dtype not in WORDS:
            return rowwise(module.array("zero_point").astype(np.int32) + middle, shape_of(module)[:-1])
        return unpack_zeros(module.array("zero_point"), bits_of(module), shape_of(module)[-2])

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32."""
        if module.part("g_idx") is not None:
            return module.array("g_idx").astype(np.int32)
        scheme = module.form.scheme
        return group_of(_columns(module), scheme.group_size if scheme is not None else None)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """See WeightFormat.replace."""
        new: dict[str, Array] = {}
        if "codes" in parts:
            new[PAYLOAD] = pack_words(parts["codes"], bits_of(module))
        if "scales" in parts:
            new["scale"] = unrepeated(parts["scales"], module.part("scale"))
        if "zeros" in parts:
            part, middle = module.part("zero_point"), 1 << (bits_of(module) - 1)
            packed = part is None or part.dtype in WORDS
            zeros = parts["zeros"]
            new["zero_point"] = pack_zeros(zeros, bits_of(module)) if packed else zeros.astype(np.int8) - middle
        if "group_index" in parts:
            new["g_idx"] = parts["group_index"]
        return rewrite(module, new)


def groups_of(scale: TensorInfo | None, rows: tuple[int, ...]) -> int | None:
    """Scales a row; 1 for a single scale; None if there is none, or its shape does not fit the rows."""
    if scale is None:
        return None
    if scale.shape[:-1] == rows and len(scale.shape) == len(rows) + 1:
        return scale.shape[-1]
    return 1 if num_elements(scale.shape) == 1 else None


def strategy_of(
    scale: TensorInfo | None, in_features: int | None, groups: int | None, declared: Scheme | None
) -> tuple[str | None, int | None]:
    """Strategy and group size; one scale is `tensor`, unless the module has one row and the config says otherwise."""
    said = declared.strategy if declared is not None else None
    if scale is not None and num_elements(scale.shape) == 1 and len(scale.shape) < 2:
        return "tensor", None
    if said == "tensor" and scale is not None and num_elements(scale.shape) == 1:
        return "tensor", None
    return grouping(in_features, groups, declared)


def rowwise(values: Array, rows: tuple[int, ...]) -> Array:
    """[out, groups] as it is; a single value as [out, 1]."""
    return np.broadcast_to(values.reshape(()), (*rows, 1)) if values.size == 1 else values


def unrepeated(scales: Array, stored: TensorInfo | None) -> Array:
    """Undo `rowwise` for a module that stores one scale. Raises ValueError if the rows differ."""
    if stored is None or num_elements(stored.shape) != 1 or scales.size == 1:
        return scales
    if (scales != scales.reshape(-1)[0]).any():
        raise ValueError(f"{stored.name}: one scale is stored, {scales.size} different ones were given")
    return scales.reshape(-1)[:1]


def _columns(module: StoredModule) -> int:
    """Inputs: the last entry of weight_shape if the words agree with it, else what the headers gave."""
    shape, payload = shape_of(module), module.payload
    if module.part("shape") is None or payload is None:
        return shape[-1]
    said = module.array("shape").reshape(-1)
    if not said.size or not np.issubdtype(said.dtype, np.integer):
        return shape[-1]
    fits = num_words(max(int(said[-1]), 0), bits_of(module)) == payload.shape[-1]
    return int(said[-1]) if fits else shape[-1]


def _in_features(words: int, num_bits: int | None, expected: tuple[int, ...] | None) -> int | None:
    if num_bits is None:
        return expected[-1] if expected else None
    if expected and num_words(expected[-1], num_bits) == words:
        return expected[-1]
    return words * WORD_BITS // num_bits


def _contradictions(
    parts: Parts, num_bits: int | None, in_features: int | None, groups: int | None, strategy: str | None
) -> list[Contradiction]:
    rows = parts["weight_packed"].shape[:-1]
    words = num_words(rows[-1], num_bits) if num_bits is not None else None
    scale, zeros = parts.get("weight_scale"), parts.get("weight_zero_point")
    found = []
    if scale is not None and num_elements(scale.shape) == 1 and groups == 1:
        found += part_contradictions(scale, "scale", "shape", SCALE_DTYPES, scale.shape)
    else:
        found += part_contradictions(scale, "scale", "shape", SCALE_DTYPES, (*rows, groups))
    if strategy != "tensor":
        want = (*rows[:-1], words, groups)
        found += part_contradictions(zeros, "zero_point", "zero_point", WORDS, want, " packed along out")
    found += part_contradictions(parts.get("weight_shape"), "shape", "shape", INTEGERS, (len(rows) + 1,))
    found += part_contradictions(parts.get("weight_g_idx"), "g_idx", "act_order", INTEGERS, (in_features,))
    return found

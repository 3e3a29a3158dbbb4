"""AWQ GEMV: 4-bit integers packed along the input axis in natural order, one output row after the other.

    qweight  int32 [out, in / 8]        31 | i+7 | i+6 | i+5 | i+4 | i+3 | i+2 | i+1 | i | 0
    qzeros   int32 [out, width]         zero points, eight groups to a word, zero-padded
    scales   fp16  [out, width * 8]     zero-padded to the same number of groups

    w[o, i] = (code[o, i] - zero[o, g]) * scale[o, g]      g = i // group_size

`width` is in / group_size / 8, rounded up to a multiple of 1, 2 or 4 for groups of 128 and more, 64 and 32. Scales of
the padding are zero and that is legal; groups are read up to in / group_size only. The padding also hides the group
size: several sizes can give one width, so the declared one is believed where it fits.
Source: AutoAWQ `modules/linear/gemv.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import group_of
from degarble.formats.affine import quantize as quantize
from degarble.formats.agreement import shape_of
from degarble.formats.integer_agreement import (
    SCALE_DTYPES,
    WORDS,
    absent,
    disagreements,
    malformed,
    matrix,
    needed_roles,
    part_contradictions,
    stored_scheme,
)
from degarble.formats.interface import PAYLOAD, Axis, Form, Parts, StoredModule, WeightFormat
from degarble.formats.packing import pack_words, unpack_words
from degarble.formats.qweight import PACKED, layout_of
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"awq"})
NUM_BITS = 4
GROUP_SIZES = (128, 64, 32)
"""The sizes that the kernels know, the usual one first."""


def padded_width(in_features: int, group_size: int) -> int:
    """Words in a row of zero points, padding included."""
    multiple = {32: 4, 64: 2}.get(group_size, 1)
    words = -(-(in_features // group_size) // PACKED)
    return -(-words // multiple) * multiple


def pack(codes: Array) -> Array:
    """[out, in] in 0..15 -> [out, in / 8] words. Raises ValueError if `in` is no multiple of 8."""
    if codes.shape[-1] % PACKED:
        raise ValueError(f"AWQ packs 8 columns to a word, found {codes.shape[-1]} columns")
    return pack_words(codes, NUM_BITS)


def unpack(qweight: Array) -> Array:
    """[out, words] -> [out, words * 8] uint8."""
    return unpack_words(qweight, NUM_BITS, qweight.shape[-1] * PACKED)


def pad(values: Array, width: int) -> Array:
    """[out, groups] -> [out, width], zeros behind. Raises ValueError if there are more groups than room."""
    if values.shape[-1] > width:
        raise ValueError(f"{values.shape[-1]} groups do not fit into {width}")
    return np.pad(values, ((0, 0), (0, width - values.shape[-1])))


class AwqGemv(WeightFormat):
    """AWQ in the GEMV layout: `version: gemv`."""

    name: ClassVar[str] = "awq_gemv"
    roles: ClassVar[Mapping[str, str]] = {
        "qweight": PAYLOAD,
        "scales": "scale",
        "qzeros": "zero_point",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, PACKED)),
        "scale": ((-2, 1), None),
        "zero_point": ((-2, 1), None),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """See qweight.layout_of."""
        layout, strength = layout_of(parts, declared)
        return strength if layout == self.name else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        payload, needed = parts["qweight"], needed_roles(declared, "scale", asymmetric=("zero_point",))
        if len(payload.shape) != 2 or payload.dtype not in WORDS:
            return malformed(
                self, parts, declared, method="awq", methods=METHODS, needed=needed, expected="I32 [out, in / 8]"
            )
        out, in_features = payload.shape[0], payload.shape[1] * PACKED
        strategy, group_size = _grouping(in_features, _width(parts, out), declared)
        scheme = stored_scheme(declared, method="awq", num_bits=NUM_BITS, strategy=strategy, group_size=group_size)
        width = padded_width(in_features, group_size or max(in_features, 1))
        found = [
            *disagreements(declared, scheme, methods=METHODS),
            *part_contradictions(parts.get("scales"), "scale", "shape", SCALE_DTYPES, (out, width * PACKED)),
            *part_contradictions(
                parts.get("qzeros"), "zero_point", "zero_point", WORDS, (out, width), " padded, packed along groups"
            ),
        ]
        return Form(
            format=self.name,
            scheme=scheme,
            shape=(out, in_features),
            roles=self.role_suffixes(parts),
            missing=absent(needed, self.by_role(parts)),
            contradictions=tuple(found),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] unsigned codes."""
        return unpack(matrix(module, PAYLOAD))

    def scales(self, module: StoredModule) -> Array:
        """[out, groups] float32, without the padding."""
        return matrix(module, "scale")[:, : _num_groups(module)].astype(np.float32)

    def zeros(self, module: StoredModule) -> Array:
        """[out, groups] int32, without the padding; 8 everywhere if none are stored."""
        groups = _num_groups(module)
        if module.part("zero_point") is None:
            return np.full((shape_of(module)[0], groups), 1 << (NUM_BITS - 1), np.int32)
        return unpack(matrix(module, "zero_point"))[:, :groups].astype(np.int32)

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32."""
        scheme = module.form.scheme
        return group_of(shape_of(module)[1], scheme.group_size if scheme is not None else None)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """See WeightFormat.replace. The padding is zero again."""
        new: dict[str, Array] = {}
        if "codes" in parts:
            new[PAYLOAD] = pack(parts["codes"])
        if "scales" in parts:
            new["scale"] = pad(parts["scales"], module.array("scale").shape[1])
        if "zeros" in parts:
            stored = module.part("zero_point")
            width = stored.shape[1] if stored is not None else -(-parts["zeros"].shape[1] // PACKED)
            new["zero_point"] = pack(pad(parts["zeros"], width * PACKED))
        if "group_index" in parts:
            new["g_idx"] = parts["group_index"]
        return rewrite(module, new)


def _num_groups(module: StoredModule) -> int:
    scheme, in_features = module.form.scheme, shape_of(module)[1]
    size = (scheme.group_size if scheme is not None else None) or max(in_features, 1)
    return -(-in_features // size)


def _width(parts: Parts, out: int) -> int | None:
    """Words in a row of zero points, by the scales or by the zero points themselves."""
    scale, zeros = parts.get("scales"), parts.get("qzeros")
    if scale is not None and len(scale.shape) == 2 and scale.shape[0] == out and scale.shape[1] % PACKED == 0:
        return scale.shape[1] // PACKED
    return zeros.shape[1] if zeros is not None and len(zeros.shape) == 2 and zeros.shape[0] == out else None


def _grouping(in_features: int, width: int | None, declared: Scheme | None) -> tuple[str | None, int | None]:
    """Strategy and group size: the declared ones if they give this width, else the usual size that does."""
    said = declared.group_size if declared is not None else None
    strategy = declared.strategy if declared is not None else None
    if width is None or (said and padded_width(in_features, said) == width):
        return strategy, said
    if strategy == "channel" and width == 1:
        return strategy, None
    fitting = (size for size in GROUP_SIZES if padded_width(in_features, size) == width)
    return "group", next(fitting, -(-in_features // (width * PACKED)) if width else None)

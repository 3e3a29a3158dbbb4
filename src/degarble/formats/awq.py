"""AWQ GEMM: 4-bit integers packed along the output axis, eight to a word, in an order that suits one GPU instruction.

    qweight  int32 [in, out / 8]        codes of one input, packed along the row
    qzeros   int32 [groups, out / 8]    zero points in the same order, as they are (nothing subtracted)
    scales   fp16  [groups, out]

    one word:   31 | o+7 | o+5 | o+3 | o+1 | o+6 | o+4 | o+2 | o | 0       nibble n holds column ORDER[n]

    w[o, i] = (code[o, i] - zero[o, g]) * scale[o, g]      g = i // group_size

Read in natural order, six of eight columns of every word are swapped and the output is noise. Source: AutoAWQ
`modules/linear/gemm.py`, `utils/packing_utils.py`. AutoAWQ writes zero points always; where a config says symmetric and
there are none, the zero is 8.
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
    grouping,
    malformed,
    matrix,
    needed_roles,
    part_contradictions,
    stored_scheme,
)
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.packing import pack_words, unpack_words
from degarble.formats.qweight import PACKED, layout_of
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"awq"})
NUM_BITS = 4
MIDDLE = 8
"""The zero point of a symmetric scheme."""

ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])
"""Nibble n of a word holds column ORDER[n] of its eight."""

REVERSE = np.argsort(ORDER)
"""Column c of eight lies in nibble REVERSE[c]."""


def unpack(words: Array) -> Array:
    """[rows, out / 8] words -> [rows, out] uint8, columns in their natural order."""
    nibbles = unpack_words(words, NUM_BITS, words.shape[-1] * PACKED)
    return nibbles.reshape(*words.shape, PACKED)[..., REVERSE].reshape(*words.shape[:-1], -1)


def pack(values: Array) -> Array:
    """[rows, out] in 0..15 -> [rows, out / 8] words. Raises ValueError if `out` is no multiple of 8."""
    if values.shape[-1] % PACKED:
        raise ValueError(f"AWQ packs 8 columns to a word, found {values.shape[-1]} columns")
    groups = values.reshape(*values.shape[:-1], -1, PACKED)[..., ORDER]
    return pack_words(groups.reshape(values.shape), NUM_BITS)


class Awq(WeightFormat):
    """AWQ in the GEMM layout, the default of AutoAWQ and what GPTQModel and auto-round write as `awq`."""

    name: ClassVar[str] = "awq"
    roles: ClassVar[Mapping[str, str]] = {
        "qweight": PAYLOAD,
        "scales": "scale",
        "qzeros": "zero_point",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-1, PACKED), (-2, 1)),
        "scale": ((-1, 1), (-2, "group")),
        "zero_point": ((-1, PACKED), (-2, "group")),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """See qweight.layout_of."""
        layout, strength = layout_of(parts, declared)
        return strength if layout == self.name else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form. Shapes tell everything: one word is always eight columns."""
        payload, needed = parts["qweight"], needed_roles(declared, "scale", asymmetric=("zero_point",))
        if len(payload.shape) != 2 or payload.dtype not in WORDS:
            return malformed(
                self, parts, declared, method="awq", methods=METHODS, needed=needed, expected="I32 [in, out / 8]"
            )
        in_features, words = payload.shape
        groups = _groups(parts, words)
        strategy, group_size = grouping(in_features, groups, declared)
        scheme = stored_scheme(declared, method="awq", num_bits=NUM_BITS, strategy=strategy, group_size=group_size)
        found = disagreements(declared, scheme, methods=METHODS)
        return Form(
            format=self.name,
            scheme=scheme,
            shape=(words * PACKED, in_features),
            roles=self.role_suffixes(parts),
            missing=absent(needed, self.by_role(parts)),
            contradictions=(*found, *_contradictions(parts, groups, words)),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] unsigned codes."""
        return np.ascontiguousarray(unpack(matrix(module, PAYLOAD)).T)

    def scales(self, module: StoredModule) -> Array:
        """[out, groups] float32."""
        return np.ascontiguousarray(matrix(module, "scale").T).astype(np.float32)

    def zeros(self, module: StoredModule) -> Array:
        """[out, groups] int32; 8 everywhere if none are stored."""
        if module.part("zero_point") is None:
            return np.full(matrix(module, "scale").T.shape, MIDDLE, np.int32)
        return np.ascontiguousarray(unpack(matrix(module, "zero_point")).T.astype(np.int32))

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32."""
        scheme = module.form.scheme
        size = scheme.group_size if scheme is not None else None
        return group_of(shape_of(module)[-1], size)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """See WeightFormat.replace. The group index follows from the shapes and cannot be written."""
        new: dict[str, Array] = {}
        if "codes" in parts:
            new[PAYLOAD] = pack(parts["codes"].T)
        if "scales" in parts:
            new["scale"] = parts["scales"].T
        if "zeros" in parts:
            new["zero_point"] = pack(parts["zeros"].T)
        if "group_index" in parts:
            new["g_idx"] = parts["group_index"]
        return rewrite(module, new)


def _groups(parts: Parts, words: int) -> int | None:
    """Number of groups: the rows of the scales, or of the zero points if the scales are gone or misshapen."""
    scale, zeros = parts.get("scales"), parts.get("qzeros")
    if scale is not None and len(scale.shape) == 2 and scale.shape[1] == words * PACKED:
        return scale.shape[0]
    return zeros.shape[0] if zeros is not None and len(zeros.shape) == 2 else None


def _contradictions(parts: Parts, groups: int | None, words: int) -> list[Contradiction]:
    return [
        *part_contradictions(parts.get("scales"), "scale", "shape", SCALE_DTYPES, (groups, words * PACKED)),
        *part_contradictions(
            parts.get("qzeros"), "zero_point", "zero_point", WORDS, (groups, words), " packed along out"
        ),
    ]

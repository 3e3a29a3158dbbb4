"""GPTQ: integers packed along the input axis, zero points stored minus one (v1) or as they are (v2).

    qweight  int32 [in * bits / 32, out]        codes of one output column, packed down the rows
    qzeros   int32 [groups, out * bits / 32]    zero points, packed along the row; v1 stores zero - 1
    scales   fp16  [groups, out]
    g_idx    int32 [in]                         group of each input; act-order shuffles it

    w[o, i] = (code[o, i] - zero[o, g_idx[i]]) * scale[o, g_idx[i]]

    4 bits, one word of column o:   31 | i+7 | i+6 | i+5 | i+4 | i+3 | i+2 | i+1 | i | 0

The `minus one` is taken and given back modulo 2**bits per field; whole-word arithmetic would let a borrow run into the
neighbour. 3-bit codes straddle words. Sources: AutoGPTQ `qlinear_cuda_old.py`, GPTQModel `utils/model.py` (v1 <-> v2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

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
    matrix,
    needed_roles,
    part_contradictions,
    pick_width,
    stored_scheme,
    widths_for,
)
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.packing import WORD_BITS, num_words, pack_words, unpack_words
from degarble.formats.qweight import layout_of
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"gptq"})


def unpack(qweight: Array, num_bits: int, in_features: int) -> Array:
    """[in * bits / 32, out] words -> [out, in] codes."""
    return unpack_words(np.ascontiguousarray(qweight.T), num_bits, in_features)


def pack(codes: Array, num_bits: int) -> Array:
    """[out, in] codes -> [in * bits / 32, out] words."""
    return np.ascontiguousarray(pack_words(codes, num_bits).T)


def unpack_zeros(qzeros: Array, num_bits: int, out_features: int, *, v2: bool = False) -> Array:
    """[groups, out * bits / 32] words -> [out, groups] int32 zero points."""
    stored = unpack_words(qzeros, num_bits, out_features).astype(np.int32)
    return np.ascontiguousarray((stored if v2 else (stored + 1) % (1 << num_bits)).T)


def pack_zeros(zeros: Array, num_bits: int, *, v2: bool = False) -> Array:
    """[out, groups] zero points -> [groups, out * bits / 32] words. Raises ValueError outside [0, 2**bits)."""
    if zeros.size and not 0 <= int(zeros.min()) <= int(zeros.max()) < 1 << num_bits:
        raise ValueError(f"zero points must be in [0, {1 << num_bits}), found {zeros.min()}..{zeros.max()}")
    return pack_words(zeros.T if v2 else (zeros.T.astype(np.int32) - 1) % (1 << num_bits), num_bits)


class Gptq(WeightFormat):
    """GPTQ v1 and v2; the version comes from the declaration, since headers are equal."""

    name: ClassVar[str] = "gptq"
    roles: ClassVar[Mapping[str, str]] = {
        "qweight": PAYLOAD,
        "scales": "scale",
        "qzeros": "zero_point",
        "g_idx": "g_idx",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-1, 1), (-2, "words")),
        "scale": ((-1, 1), (-2, "group")),
        "zero_point": ((-1, "words"), (-2, "group")),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """See qweight.layout_of."""
        layout, strength = layout_of(parts, declared)
        return strength if layout == self.name else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        payload, needed = parts["qweight"], needed_roles(declared, "scale", "zero_point")
        if len(payload.shape) != 2 or payload.dtype not in WORDS:
            text = "I32 [in * bits / 32, out]"
            return malformed(self, parts, declared, method="gptq", methods=METHODS, needed=needed, expected=text)
        num_bits = self._num_bits(parts, declared, expected)
        in_features = self._in_features(parts, num_bits, expected)
        strategy, group_size = grouping(in_features, _groups(parts), declared)
        scheme = stored_scheme(declared, method="gptq", num_bits=num_bits, strategy=strategy, group_size=group_size)
        found = disagreements(declared, scheme, methods=METHODS)
        return Form(
            format=self.name,
            scheme=scheme,
            shape=(payload.shape[1], in_features) if in_features is not None else None,
            roles=self.role_suffixes(parts),
            missing=absent(needed, self.by_role(parts)),
            contradictions=(*found, *self._contradictions(parts, num_bits, in_features)),
        )

    def _num_bits(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> int | None:
        """The index tells the number of inputs, the zero points the packing of `out`, the architecture both."""
        (rows, out), zeros, index = parts["qweight"].shape, parts.get("qzeros"), parts.get("g_idx")
        evidence = [widths_for(index.shape[0], rows)] if index is not None and len(index.shape) == 1 else []
        if zeros is not None and len(zeros.shape) == 2 and zeros.dtype in WORDS:
            evidence.append(widths_for(out, zeros.shape[1]))
        if expected:
            evidence.append(widths_for(expected[-1], rows))
        return pick_width(evidence, declared)

    def _in_features(self, parts: Parts, num_bits: int | None, expected: tuple[int, ...] | None) -> int | None:
        rows, index = parts["qweight"].shape[0], parts.get("g_idx")
        known = [index.shape[0]] if index is not None and len(index.shape) == 1 else []
        known += [expected[-1]] if expected else []
        if num_bits is None:
            return known[0] if known else None
        fitting = (columns for columns in known if num_words(columns, num_bits) == rows)
        return next(fitting, rows * WORD_BITS // num_bits)

    def _contradictions(self, parts: Parts, num_bits: int | None, in_features: int | None) -> list[Contradiction]:
        out, groups = parts["qweight"].shape[1], _groups(parts)
        width = num_words(out, num_bits) if num_bits is not None else None
        return [
            *part_contradictions(parts.get("scales"), "scale", "shape", SCALE_DTYPES, (groups, out)),
            *part_contradictions(
                parts.get("qzeros"), "zero_point", "zero_point", WORDS, (groups, width), " packed along out"
            ),
            *part_contradictions(parts.get("g_idx"), "g_idx", "act_order", INTEGERS, (in_features,)),
        ]

    def codes(self, module: StoredModule) -> Array:
        """[out, in] unsigned codes."""
        return unpack(matrix(module, PAYLOAD), bits_of(module), shape_of(module)[1])

    def scales(self, module: StoredModule) -> Array:
        """[out, groups] float32."""
        return np.ascontiguousarray(matrix(module, "scale").T).astype(np.float32)

    def zeros(self, module: StoredModule) -> Array:
        """[out, groups] int32."""
        return unpack_zeros(matrix(module, "zero_point"), bits_of(module), shape_of(module)[0], v2=_is_v2(module))

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32: g_idx where stored, else i // group_size."""
        if module.part("g_idx") is not None:
            return module.array("g_idx").astype(np.int32)
        scheme = module.form.scheme
        return group_of(shape_of(module)[1], scheme.group_size if scheme is not None else None)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """See WeightFormat.replace."""
        new: dict[str, Array] = {}
        if "codes" in parts:
            new[PAYLOAD] = pack(parts["codes"], bits_of(module))
        if "scales" in parts:
            new["scale"] = parts["scales"].T
        if "zeros" in parts:
            new["zero_point"] = pack_zeros(parts["zeros"], bits_of(module), v2=_is_v2(module))
        if "group_index" in parts:
            new["g_idx"] = parts["group_index"]
        return rewrite(module, new)


def _groups(parts: Parts) -> int | None:
    """Number of groups: the rows of the scales, or of the zero points if the scales are gone or misshapen."""
    scale, zeros = parts.get("scales"), parts.get("qzeros")
    if scale is not None and len(scale.shape) == 2 and scale.shape[1] == parts["qweight"].shape[1]:
        return scale.shape[0]
    return zeros.shape[0] if zeros is not None and len(zeros.shape) == 2 else None


def _is_v2(module: StoredModule) -> bool:
    return module.form.scheme is not None and module.form.scheme.format == "gptq_v2"

"""ModelOpt W4A16_AWQ: signed 4-bit integers, two *rows* to a byte.

    weight           uint8 [out / 2, in]        7 | row 2r+1 | row 2r | 0        two's complement, -8..7
    weight_scale     fp32  [out, in / group]    group 128 by default
    pre_quant_scale  bf16  [in]                 AWQ's smoothing that no norm could take: multiplies the input

    w[o, i] = code[o, i] * scale[o, g]          g = i // group_size, no zero points

The smoothed input is `x * pre_quant_scale`, so the layer computes with `w * pre_quant_scale`; `dequantize` gives `w`,
what is stored, as for every other format. Where `pre_quant_scale` is absent it was folded into the norm in front, or
into the rows of v_proj. Packing runs along the output axis, unlike every other byte format here: read along the input
axis a square matrix still has the right size. W4A8_AWQ adds `weight_scale_2`, whose use we have not seen proven: such
modules stay unknown. Source: ModelOpt `export/quant_utils.py` (`pack_int4_in_uint8`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import group_of
from degarble.formats.agreement import shape_of
from degarble.formats.integer_agreement import (
    SCALE_DTYPES,
    absent,
    disagreements,
    grouping,
    malformed,
    matrix,
    needed_roles,
    part_contradictions,
    stored_scheme,
)
from degarble.formats.interface import PAYLOAD, Axis, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"modelopt"})
NUM_BITS = 4
LOWEST, HIGHEST = -8, 7


def unpack(packed: Array) -> Array:
    """[out / 2, in] bytes -> [out, in] int8."""
    rows = np.stack([packed & 0x0F, packed >> 4], axis=-2).astype(np.int8)  # [out / 2, 2, in]
    signed = np.where(rows > HIGHEST, rows - 16, rows).astype(np.int8)
    return signed.reshape(*packed.shape[:-2], packed.shape[-2] * 2, packed.shape[-1])


def pack(codes: Array) -> Array:
    """[out, in] in -8..7 -> [out / 2, in] bytes. Raises ValueError for another range or an odd `out`."""
    if codes.shape[-2] % 2:
        raise ValueError(f"two rows share a byte, found {codes.shape[-2]} rows")
    if codes.size and not LOWEST <= int(codes.min()) <= int(codes.max()) <= HIGHEST:
        raise ValueError(f"codes must be in -8..7, found {codes.min()}..{codes.max()}")
    nibbles = codes.astype(np.int16).astype(np.uint8) & 0x0F
    return np.asarray(nibbles[..., 0::2, :] | nibbles[..., 1::2, :] << 4)


def quantize(weight: Array, group_size: int = 128) -> tuple[Array, Array]:
    """[out, in] -> int8 codes and float32 scales [out, groups] = amax / 7; an all-zero group gets scale 1."""
    starts = range(0, weight.shape[-1], group_size)
    amax = np.stack([np.abs(weight[..., s : s + group_size]).max(axis=-1) for s in starts], axis=-1)
    scales = np.where(amax > 0, amax / np.float32(HIGHEST), np.float32(1)).astype(np.float32)
    codes = np.rint(weight / scales[..., group_of(weight.shape[-1], group_size)])
    return np.clip(codes, LOWEST, HIGHEST).astype(np.int8), scales


class ModelOptInt4(WeightFormat):
    """Weight-only INT4 of NVIDIA's Model Optimizer."""

    name: ClassVar[str] = "modelopt_int4"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight_scale": "scale",
        "pre_quant_scale": "pre_quant_scale",
        "input_scale": "input_scale",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 2), (-1, 1)),
        "scale": ((-2, 1), (-1, "group")),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """Bytes with floating-point scales for twice as many rows, or bytes under a config that says so."""
        payload, scale = parts.get("weight"), parts.get("weight_scale")
        if payload is None or payload.dtype != "U8" or "weight.absmax" in parts:
            return 0
        if scale is not None and scale.dtype in SCALE_DTYPES and _is_two_rows_a_byte(payload.shape, scale.shape):
            return 3
        is_said = declared is not None and declared.method in METHODS
        if not is_said or declared is None or "weight_scale_2" in parts:
            return 0
        return 2 if (declared.type, declared.num_bits) == ("int", NUM_BITS) else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        payload, scale = parts["weight"], parts.get("weight_scale")
        needed = needed_roles(declared, "scale")
        if len(payload.shape) not in (2, 3):
            return malformed(
                self, parts, declared, method="modelopt", methods=METHODS, needed=needed, expected="U8 [out / 2, in]"
            )
        shape = (*payload.shape[:-2], payload.shape[-2] * 2, payload.shape[-1])
        groups = scale.shape[-1] if scale is not None and scale.shape[:-1] == shape[:-1] else None
        strategy, group_size = grouping(shape[-1], groups, declared)
        scheme = stored_scheme(declared, method="modelopt", num_bits=NUM_BITS, strategy=strategy, group_size=group_size)
        smooth = parts.get("pre_quant_scale")
        return Form(
            format=self.name,
            scheme=scheme,
            shape=shape,
            roles=self.role_suffixes(parts),
            missing=absent(needed, self.by_role(parts)),
            contradictions=(
                *disagreements(declared, scheme, methods=METHODS),
                *part_contradictions(scale, "scale", "shape", SCALE_DTYPES, (*shape[:-1], groups)),
                *part_contradictions(smooth, "pre_quant_scale", "shape", SCALE_DTYPES, (shape[-1],)),
            ),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] int8 codes."""
        return unpack(matrix(module, PAYLOAD))

    def scales(self, module: StoredModule) -> Array:
        """[out, groups] float32."""
        return matrix(module, "scale").astype(np.float32)

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32."""
        scheme = module.form.scheme
        return group_of(shape_of(module)[-1], scheme.group_size if scheme is not None else None)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """See WeightFormat.replace."""
        new: dict[str, Array] = {}
        if "codes" in parts:
            new[PAYLOAD] = pack(parts["codes"])
        if "scales" in parts:
            new["scale"] = parts["scales"]
        if "zeros" in parts or "group_index" in parts:
            raise ValueError(f"{module.name}: ModelOpt INT4 stores neither zero points nor a group index")
        return rewrite(module, new)


def _is_two_rows_a_byte(packed: tuple[int, ...], scale: tuple[int, ...]) -> bool:
    return len(packed) == len(scale) > 1 and scale[-2] == packed[-2] * 2

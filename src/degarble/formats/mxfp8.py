"""MXFP8: 8-bit floats with an exponent byte for every 32 inputs of a row.

    weight                            F8_E4M3        [out, in]
    weight_scale | weight_scale_inv   U8 | F8_E8M0   [out, in / 32]      2 ** (byte - 127), see e8m0.py

    w[o, i] = code[o, i] * 2 ** (byte[o, i // 32] - 127)

compressed-tensors (`mxfp8-quantized`) says `weight_scale`, MiniMax says `weight_scale_inv`. A reader that takes the
byte for the scale is about 2 ** 127 off; it looks like a block scale, so the dtype is the only tell.
Sources: compressed-tensors `mxfp8/base.py`, transformers `finegrained_fp8.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats import e8m0
from degarble.formats.agreement import shape_contradiction
from degarble.formats.float8 import MX_GROUP, decode, encode, layout_of
from degarble.formats.float_agreement import (
    MODELOPT,
    disagreements,
    dtype_contradictions,
    group_contradictions,
    missing_roles,
    sharpened,
    stored_group,
)
from degarble.formats.interface import PAYLOAD, Axis, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

LARGEST_EXPONENT = 8
"""Exponent of 448's power of two, 256: what the block's largest value is brought to."""


def quantize(weight: Array) -> tuple[Array, Array]:
    """[out, in] -> codes [out, in] uint8 and exponent bytes [out, in / 32]. Source: OCP MX 1.0, section 6.3."""
    blocks = weight.reshape(weight.shape[0], -1, MX_GROUP)
    amax = np.abs(blocks).max(axis=-1)
    _, exponent = np.frexp(amax)
    power = np.where(amax > 0, exponent - 1 - LARGEST_EXPONENT, 0).clip(-e8m0.BIAS, e8m0.BIAS)
    scales = np.ldexp(np.float32(1), power)
    codes = encode(blocks / scales[..., None], "F8_E4M3").reshape(weight.shape)
    return codes, (power + e8m0.BIAS).astype(np.uint8)


def dequantize(codes: Array, scales: Array, dtype: str = "F8_E4M3") -> Array:
    """Codes [out, in] and float32 scales [out, in / 32] -> [out, in] float32."""
    index = np.arange(codes.shape[-1]) // MX_GROUP
    return np.asarray(decode(codes, dtype) * scales[..., index])


class Mxfp8(WeightFormat):
    """8-bit floats in groups of 32 with E8M0 scales."""

    name: ClassVar[str] = "mxfp8"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight_scale": "scale",
        "weight_scale_inv": "scale",
        "input_scale": "input_scale",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, 1)),
        "scale": ((-2, 1), (-1, "group")),
    }
    missing_names: ClassVar[Mapping[str, str]] = {"scale": "weight_scale"}
    methods: ClassVar[frozenset[str]] = MODELOPT | {"compressed-tensors", "fp8", "mxfp8", "quark"}

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """See float8.layout_of."""
        layout, strength = layout_of(parts, declared)
        return strength if layout == self.name else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        by_role = self.by_role(parts)
        payload, scale = by_role[PAYLOAD], by_role.get("scale")
        scheme = Scheme(
            method="compressed-tensors" if declared is None or declared.method not in self.methods else declared.method,
            format=declared.format if declared is not None else None,
            type="float",
            num_bits=8,
            strategy="group",
            group_size=stored_group(payload.shape, scale, MX_GROUP),
            symmetric=True,
            activations=declared.activations if declared is not None else None,
        )
        found = disagreements(declared, scheme, self.methods)
        found += dtype_contradictions(by_role, {"scale": e8m0.DTYPES})
        block = declared.block_shape if declared is not None else None
        if scale is not None and block not in (None, (1, MX_GROUP)):
            found.append(shape_contradiction("block_grid", "scale", f"blocks of {block}", scale))
        if len(payload.shape) < 2:
            found.append(shape_contradiction("shape", PAYLOAD, "a matrix [out, in]", payload))
        elif scale is not None:
            found = sharpened(found, group_contradictions(payload.shape, scale, MX_GROUP))
        return Form(
            format=self.name,
            scheme=scheme,
            shape=payload.shape,
            roles=self.role_suffixes(parts),
            missing=missing_roles(by_role, ("scale",), declared),
            contradictions=tuple(found),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] raw codes as uint8."""
        return module.array(PAYLOAD).view(np.uint8)

    def scales(self, module: StoredModule) -> Array:
        """[out, in / 32] float32."""
        return e8m0.decode(module.array("scale"))

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32."""
        columns = module.parts[module.form.roles[PAYLOAD]].shape[-1]
        return (np.arange(columns) // MX_GROUP).astype(np.int32)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32."""
        return dequantize(self.codes(module), self.scales(module), module.parts[module.form.roles[PAYLOAD]].dtype)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` are raw codes (uint8), `scales` float32; other keys are roles whose stored values are given."""
        new = dict(parts)
        if "scales" in new:
            new["scale"] = e8m0.encode(new.pop("scales"))
        if "codes" in new:
            new[PAYLOAD] = new.pop("codes")
        return rewrite(module, new)

"""MXFP4 as gpt-oss stores it: all experts of a layer in one tensor, blocks of 16 bytes.

    <projection>_blocks  U8  [experts, out, in / 32, 16]     32 E2M1 codes a block, low nibble first
    <projection>_scales  U8  [experts, out, in / 32]         2 ** (byte - 127)
    <projection>_bias        [experts, out]                  the suffix is joined by an underscore, not a dot

    w[e, o, i] = value(code[e, o, i]) * 2 ** (scale[e, o, i // 32] - 127)

Stored rows are outputs; transformers transposes the product to its parameter's [experts, in, out]. In `gate_up_proj`
gate and up alternate row by row (0 gate, 1 up, 2 gate, …), where other families put one half behind the other.
Exponent 255 is NaN by the standard; transformers' ldexp makes it infinite. Source: its `integrations/mxfp4.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats import e2m1, e8m0
from degarble.formats.agreement import shape_contradiction
from degarble.formats.float_agreement import disagreements, dtype_contradictions
from degarble.formats.fp4_matrix import dequantize
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.mxfp4 import GROUP
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

BLOCK_BYTES = GROUP // 2
METHODS = frozenset({"mxfp4"})


def unpack(blocks: Array) -> Array:
    """[experts, out, G, 16] bytes -> codes [experts, out, in]."""
    codes = e2m1.unpack(blocks)  # [experts, out, G, 32]
    return codes.reshape(*codes.shape[:-2], codes.shape[-2] * codes.shape[-1])


def pack(codes: Array) -> Array:
    """Undo `unpack`. Raises ValueError unless `in` is a multiple of 32."""
    if codes.shape[-1] % GROUP:
        raise ValueError(f"rows of {codes.shape[-1]} codes do not divide into blocks of {GROUP}")
    return e2m1.pack(codes.reshape(*codes.shape[:-1], -1, GROUP))


class Mxfp4Experts(WeightFormat):
    """Fused MXFP4 experts of gpt-oss."""

    name: ClassVar[str] = "mxfp4_experts"
    roles: ClassVar[Mapping[str, str]] = {"_blocks": PAYLOAD, "_scales": "scale", "_bias": "bias"}
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-3, 1), (-2, GROUP)),
        "scale": ((-2, 1), (-1, "group")),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """By name; by shape if the last axis is a block of 16 bytes."""
        payload = parts.get("_blocks")
        if payload is None or payload.dtype not in ("U8", "I8"):
            return 0
        if payload.shape[-1:] == (BLOCK_BYTES,) and "_scales" in parts:
            return 3
        return 2 if declared is not None and declared.method in METHODS else 1

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        payload, scale = parts["_blocks"], parts.get("_scales")
        scheme = Scheme(
            method="mxfp4", type="float", num_bits=4, strategy="group", group_size=GROUP, symmetric=True,
            format=declared.format if declared is not None else None,
        )  # fmt: skip
        shape = (*payload.shape[:-2], payload.shape[-2] * GROUP) if len(payload.shape) >= 3 else None
        found: list[Contradiction] = disagreements(declared, scheme, METHODS)
        found += dtype_contradictions({"scale": scale} if scale is not None else {}, {"scale": e8m0.DTYPES})
        if shape is None or payload.shape[-1] != BLOCK_BYTES:
            found.append(shape_contradiction("shape", PAYLOAD, "[experts, out, in / 32, 16]", payload))
        elif scale is not None and scale.shape != payload.shape[:-1]:
            rows_agree = scale.shape[:-1] == payload.shape[:-2]
            about = "group_size" if rows_agree else "shape"
            found.append(shape_contradiction(about, "scale", f"{list(payload.shape[:-1])}, one for each block", scale))
        return Form(
            format=self.name,
            scheme=scheme,
            shape=shape,
            roles=self.role_suffixes(parts),
            missing=() if scale is not None else ("scale",),
            contradictions=tuple(found),
        )

    def codes(self, module: StoredModule) -> Array:
        """[experts, out, in] codes 0..15."""
        return unpack(module.array(PAYLOAD))

    def scales(self, module: StoredModule) -> Array:
        """[experts, out, in / 32] float32."""
        return e8m0.decode(module.array("scale"))

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32."""
        groups = module.parts[module.form.roles[PAYLOAD]].shape[-2]
        return np.repeat(np.arange(groups, dtype=np.int32), GROUP)

    def dequantize(self, module: StoredModule) -> Array:
        """[experts, out, in] float32."""
        return dequantize(self.codes(module), self.scales(module), GROUP)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` 0..15 and float32 `scales`; other keys are roles whose stored values are given."""
        new = dict(parts)
        if "scales" in new:
            new["scale"] = e8m0.encode(new.pop("scales"))
        if "codes" in new:
            new[PAYLOAD] = pack(new.pop("codes"))
        return rewrite(module, new)

"""FP8 with one scale per tensor or per output row.

    weight        F8_E4M3 | F8_E5M2  [out, in]              [experts, out, in] works alike
    weight_scale  F32 | BF16 | F16   [] or [1] (tensor), [out, 1] or [out] (channel)
    input_scale   F32 | BF16         [] or [1]              static activations only
    output_scale  …                                          old KV-cache exports

    w[o, i] = code[o, i] * scale[o]            the scale MULTIPLIES; amax / 448 when it was made

compressed-tensors (`float-quantized`, `naive-quantized`), ModelOpt FP8, FBGEMM and AutoFP8 all store this. A missing
scale leaves raw codes of up to 448 as weights. ModelOpt rounds weight / scale to bf16 before it casts, so its codes are
not always the nearest to the weight. Sources: compressed-tensors `naive_quantized/base.py`, ModelOpt `quant_utils.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import shape_contradiction
from degarble.formats.float8 import METHODS, SCALE_DTYPES, decode, encode, largest, layout_of
from degarble.formats.float_agreement import MODELOPT, disagreements, dtype_contradictions, missing_roles
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme


def quantize(weight: Array, *, strategy: str, dtype: str = "F8_E4M3") -> tuple[Array, Array]:
    """[out, in] -> codes [out, in] uint8 and scales float32 ([1, 1] for `tensor`, [out, 1] for `channel`).

    An all-zero row gets scale 1, so that no reader divides by zero.
    """
    axis = None if strategy == "tensor" else -1
    amax = np.abs(weight).max(axis=axis, keepdims=True).astype(np.float32)
    scales = np.where(amax > 0, amax / np.float32(largest(dtype)), np.float32(1)).astype(np.float32)
    return encode(weight / scales, dtype), scales


def dequantize(codes: Array, scales: Array, dtype: str = "F8_E4M3") -> Array:
    """Codes [out, in] and scales that broadcast -> [out, in] float32."""
    return np.asarray(decode(codes, dtype) * scales.astype(np.float32))


def align(scale: Array, shape: tuple[int, ...]) -> Array:
    """Give a scale axes that broadcast over a weight of `shape`. Raises ValueError if none is meant for the other."""
    target = aligned_shape(scale.shape, shape)
    if target is None:
        raise ValueError(f"a scale of shape {list(scale.shape)} belongs to no tensor or row of {list(shape)}")
    return scale.reshape(target)


def aligned_shape(scale: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The broadcasting shape of a per-tensor, per-expert or per-row scale; None if it is something else."""
    if num_elements(scale) == 1:
        return (1,) * len(shape)
    if scale in (shape[:-1], (*shape[:-1], 1)):
        return (*shape[:-1], 1)
    if len(shape) == 3 and scale in (shape[:1], (*shape[:1], 1), (*shape[:1], 1, 1)):
        return (shape[0], 1, 1)
    return None


def strategy_of(scale: TensorInfo, shape: tuple[int, ...], declared: Scheme | None) -> str | None:
    """`tensor` or `channel` by the scale's shape; None if it fits neither."""
    target = aligned_shape(scale.shape, shape)
    if target is None or len(shape) < 2:
        return None
    if shape[-2] == 1 and declared is not None and declared.strategy in ("tensor", "channel"):
        return declared.strategy  # one row: both are one scale
    return "channel" if target[-2] != 1 else "tensor"


class Fp8(WeightFormat):
    """8-bit floats with one scale per tensor or per output row."""

    name: ClassVar[str] = "fp8"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight_scale": "scale",
        "weight_zero_point": "zero_point",
        "input_scale": "input_scale",
        "input_scale_ub": "input_scale_bound",
        "output_scale": "output_scale",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, 1)),
        "scale": ((-2, 1), None),
        "zero_point": ((-2, 1), None),
    }
    methods: ClassVar[frozenset[str]] = METHODS | MODELOPT | {"compressed-tensors", "quark"}

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """See float8.layout_of."""
        layout, strength = layout_of(parts, declared)
        return strength if layout == self.name else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        by_role = self.by_role(parts)
        shape, scale = by_role[PAYLOAD].shape, by_role.get("scale")
        strategy = strategy_of(scale, shape, declared) if scale is not None else None
        scheme = Scheme(
            method=declared.method if declared is not None and declared.method in self.methods else "fp8",
            format=declared.format if declared is not None else None,
            type="float",
            num_bits=8,
            strategy=strategy,
            symmetric=True,
            activations=declared.activations if declared is not None else None,
        )
        return Form(
            format=self.name,
            scheme=scheme,
            shape=shape,
            roles=self.role_suffixes(parts),
            missing=missing_roles(by_role, ("scale",), declared),
            contradictions=tuple(self._contradictions(by_role, declared, scheme)),
        )

    def _contradictions(
        self, by_role: Mapping[str, TensorInfo], declared: Scheme | None, scheme: Scheme
    ) -> list[Contradiction]:
        payload, scale = by_role[PAYLOAD], by_role.get("scale")
        found = disagreements(declared, scheme, self.methods)
        found += dtype_contradictions(by_role, {"scale": SCALE_DTYPES, "input_scale": SCALE_DTYPES})
        if len(payload.shape) < 2:
            found.append(shape_contradiction("shape", PAYLOAD, "a matrix [out, in]", payload))
        elif scale is not None and scheme.strategy is None:
            rows = list(payload.shape[:-1])
            found.append(shape_contradiction("shape", "scale", f"[] or [1], or one per output row {[*rows, 1]}", scale))
        return found

    def codes(self, module: StoredModule) -> Array:
        """[out, in] raw codes as uint8."""
        return module.array(PAYLOAD).view(np.uint8)

    def scales(self, module: StoredModule) -> Array:
        """[out, 1] float32, or [1, 1] for a single scale."""
        payload = module.parts[module.form.roles[PAYLOAD]]
        return align(module.array("scale"), payload.shape).astype(np.float32)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32. Old exports store a zero point, which is zero unless it was damaged."""
        values = decode(self.codes(module), module.parts[module.form.roles[PAYLOAD]].dtype)
        if module.part("zero_point") is not None:
            values -= align(module.array("zero_point"), values.shape).astype(np.float32)
        return np.asarray(np.multiply(values, self.scales(module), out=values))

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` are raw codes (uint8); other keys but `scales` are roles whose stored values are given."""
        names = {"codes": PAYLOAD, "scales": "scale"}
        return rewrite(module, {names.get(key, key): values for key, values in parts.items()})

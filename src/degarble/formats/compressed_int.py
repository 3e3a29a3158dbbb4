"""compressed-tensors `int-quantized`: one signed byte a code, W8A8 and other schemes that need no packing.

    weight             int8 [out, in]          signed codes; widths below 8 use a part of the range
    weight_scale       bf16 [out, 1]           [out, groups], [out] or [1] for other strategies
    weight_zero_point  int8 [out, 1]           only if asymmetric
    input_scale        [1]                     only with static activations; input_zero_point beside it if asymmetric
    pre_quant_scale    bf16 [in]               ModelOpt's SmoothQuant: multiplies the input, not the weight

    w[o, i] = (code[o, i] - zero[o, g]) * scale[o, g]

`naive-quantized` is the same file. ModelOpt (W8A8_SQ_PER_CHANNEL), Quark and SGLang's `w8a8_int8` store the same parts.
Many formats keep an int8 `weight`; the scale's name decides. Source: compressed-tensors `compressors/naive_quantized`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import group_of
from degarble.formats.agreement import shape_of
from degarble.formats.compressed_pack import groups_of, rowwise, strategy_of, unrepeated
from degarble.formats.integer_agreement import (
    SCALE_DTYPES,
    WIDTHS,
    absent,
    disagreements,
    malformed,
    needed_roles,
    part_contradictions,
    stored_scheme,
)
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.modelslim import OWN_PARTS
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"compressed-tensors", "modelopt", "quark", "w8a8_int8"})
LABELS = ("int-quantized", "naive-quantized", "mixed-precision")
FOREIGN = OWN_PARTS | {"SCB", "weight_format", "weight_scale_2", "weight_scale_inv", "weight_global_scale"}
"""Companions of other formats that keep bytes under `weight`."""
WIDEST = 8


def quantize(weight: Array, num_bits: int = WIDEST) -> tuple[Array, Array]:
    """Symmetric, one scale a row: [out, in] -> int8 codes and float32 scales [out, 1]; a zero row gets scale 1."""
    limit = (1 << (num_bits - 1)) - 1
    amax = np.abs(weight).max(axis=-1, keepdims=True).astype(np.float32)
    scales = np.where(amax > 0, amax / np.float32(limit), np.float32(1)).astype(np.float32)
    return np.clip(np.rint(weight / scales), -limit - 1, limit).astype(np.int8), scales


class CompressedInt(WeightFormat):
    """`int-quantized` and `naive-quantized` integers."""

    name: ClassVar[str] = "compressed_int"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight_scale": "scale",
        "weight_zero_point": "zero_point",
        "input_scale": "input_scale",
        "input_zero_point": "input_zero_point",
        "pre_quant_scale": "pre_quant_scale",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, 1)),
        "scale": ((-2, 1), (-1, "group")),
        "zero_point": ((-2, 1), (-1, "group")),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """An int8 `weight` with a floating-point `weight_scale`, or alone under a config that says integers."""
        payload, scale = parts.get("weight"), parts.get("weight_scale")
        if payload is None or payload.dtype != "I8" or FOREIGN & set(parts):
            return 0
        if scale is not None:
            return 3 if not scale.dtype.startswith("F8") else 0
        return 2 if declared is not None and declared.method in METHODS and declared.type != "float" else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        payload, scale = parts["weight"], parts.get("weight_scale")
        needed = needed_roles(declared, "scale", asymmetric=("zero_point",))
        method = declared.method if declared is not None and declared.method in METHODS else "compressed-tensors"
        if len(payload.shape) not in (2, 3):
            return malformed(
                self, parts, declared, method=method, methods=METHODS, needed=needed, expected="I8 [out, in]"
            )
        said = declared.num_bits if declared is not None and declared.type != "float" else None
        groups = _groups(scale, payload.shape[:-1])
        strategy, group_size = strategy_of(scale, payload.shape[-1], groups, declared)
        scheme = stored_scheme(
            declared,
            method=method,
            num_bits=said if said in WIDTHS else WIDEST,
            strategy=strategy,
            group_size=group_size,
        )
        labels = LABELS if method == "compressed-tensors" else ()
        found = disagreements(declared, scheme, methods=METHODS, labels=labels)
        return Form(
            format=self.name,
            scheme=scheme,
            shape=payload.shape,
            roles=self.role_suffixes(parts),
            missing=absent(needed, self.by_role(parts)),
            contradictions=(*found, *_contradictions(parts, groups)),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] int8 codes."""
        return module.array(PAYLOAD)

    def scales(self, module: StoredModule) -> Array:
        """[out, groups] float32; a single scale is repeated for every row."""
        return self._rows(module, module.array("scale").astype(np.float32))

    def zeros(self, module: StoredModule) -> Array | None:
        """[out, groups] int32; None if symmetric."""
        if module.part("zero_point") is None:
            return None
        return self._rows(module, module.array("zero_point").astype(np.int32))

    def _rows(self, module: StoredModule, values: Array) -> Array:
        rows = shape_of(module)[:-1]
        return values[..., None] if values.shape == rows and values.size > 1 else rowwise(values, rows)

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32."""
        scheme = module.form.scheme
        return group_of(shape_of(module)[-1], scheme.group_size if scheme is not None else None)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """See WeightFormat.replace."""
        new: dict[str, Array] = {}
        if "codes" in parts:
            new[PAYLOAD] = parts["codes"].astype(np.int8)
        if "scales" in parts:
            new["scale"] = unrepeated(parts["scales"], module.part("scale"))
        if "zeros" in parts:
            new["zero_point"] = unrepeated(parts["zeros"], module.part("zero_point"))
        if "group_index" in parts:
            new["g_idx"] = parts["group_index"]
        return rewrite(module, new)


def _groups(scale: TensorInfo | None, rows: tuple[int, ...]) -> int | None:
    """As in compressed_pack; ModelOpt drops the last axis of one scale a row."""
    return 1 if scale is not None and scale.shape == rows else groups_of(scale, rows)


def _contradictions(parts: Parts, groups: int | None) -> list[Contradiction]:
    rows, scale, zeros = parts["weight"].shape[:-1], parts.get("weight_scale"), parts.get("weight_zero_point")
    is_flat = scale is not None and (scale.shape == rows or num_elements(scale.shape) == 1)
    want = scale.shape if scale is not None and is_flat else (*rows, groups)
    integers = frozenset({"I8", "I32", "I64"})
    return [
        *part_contradictions(scale, "scale", "shape", SCALE_DTYPES, want),
        *part_contradictions(zeros, "zero_point", "zero_point", integers, want),
    ]

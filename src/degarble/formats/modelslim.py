"""ModelSlim's W8A8 for Ascend: a byte a code, and for static activations the product of both scales stored as well.

    weight         int8  [out, in]       signed codes
    weight_scale   f32 or bf16 [out, 1]
    weight_offset  f32 or bf16 [out, 1]  zeros, since weights are symmetric
    input_scale    f32 or bf16 [1]       static activations only, like all that follows
    input_offset   f32, bf16 or int8 [1]
    deq_scale      f32 [out]             input_scale * weight_scale; int64 in fp16 models: the bits of the float32
    quant_bias     int32 [out]           bias / deq_scale - sum(codes) * input_offset

    w[o, i] = (code[o, i] - offset[o]) * weight_scale[o]

The integer product needs `deq_scale` alone, so exports may leave `weight_scale` out, and it follows from the other two.
Fused kernels read it all the same. `quant_model_description.json` names the kind of every tensor. Sources: msmodelslim
`deqscale.py` and its savers, vllm-ascend `quantization/w8a8.py`, vllm-project/vllm-ascend#16728.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import ml_dtypes
import numpy as np

from degarble.checkpoint.interface import num_elements
from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.formats.affine import group_of
from degarble.formats.agreement import shape_of
from degarble.formats.integer_agreement import (
    absent,
    disagreements,
    malformed,
    needed_roles,
    part_contradictions,
    stored_scheme,
)
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"ascend"})
OWN_PARTS = frozenset({"deq_scale", "quant_bias", "weight_offset", "input_offset"})
"""Suffixes that no other format has beside an int8 `weight`."""

FLOATS = frozenset({"F16", "BF16", "F32"})
STATIC = ("input_scale", "deq_scale")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class ModelSlim(WeightFormat):
    """W8A8 and W8A8_DYNAMIC of msmodelslim."""

    name: ClassVar[str] = "modelslim"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight_scale": "scale",
        "weight_offset": "zero_point",
        "input_scale": "input_scale",
        "input_offset": "input_zero_point",
        "deq_scale": "deq_scale",
        "quant_bias": "quant_bias",
        "bias": "bias",
    }
    derived: ClassVar[Mapping[str, tuple[str, ...]]] = {"scale": ("deq_scale", "input_scale")}
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, 1)),
        "scale": ((-2, 1), None),
        "zero_point": ((-2, 1), None),
        "deq_scale": ((-1, 1), None),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """An int8 `weight` beside a companion that only ModelSlim writes."""
        payload = parts.get("weight")
        return 3 if payload is not None and payload.dtype == "I8" and OWN_PARTS & set(parts) else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        payload, by_role = parts["weight"], self.by_role(parts)
        is_static = "deq_scale" in parts or "quant_bias" in parts
        needed = tuple(dict.fromkeys((*needed_roles(declared, "scale"), *(STATIC if is_static else ()))))
        if len(payload.shape) != 2:
            return malformed(
                self, parts, declared, method="ascend", methods=METHODS, needed=needed, expected="I8 [out, in]"
            )
        scheme = stored_scheme(declared, method="ascend", num_bits=8, strategy="channel", group_size=None)
        return Form(
            format=self.name,
            scheme=scheme,
            shape=payload.shape,
            roles=self.role_suffixes(parts),
            missing=absent(needed, by_role),
            contradictions=(*disagreements(declared, scheme, methods=METHODS), *_contradictions(parts)),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] int8 codes."""
        return module.array(PAYLOAD)

    def scales(self, module: StoredModule) -> Array:
        """[out, 1] float32, stored or derived."""
        stored = module.array("scale") if module.part("scale") is not None else self.derive(module, "scale", "F32")
        return stored.astype(np.float32).reshape(-1, 1)

    def zeros(self, module: StoredModule) -> Array | None:
        """[out, 1] int32; None if no offset is stored."""
        if module.part("zero_point") is None:
            return None
        return np.rint(module.array("zero_point").astype(np.float32)).astype(np.int32).reshape(-1, 1)

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32: one group."""
        return group_of(shape_of(module)[-1], None)

    def derive(self, module: StoredModule, role: str, dtype: str) -> Array:
        """[out, 1] `weight_scale` from `deq_scale / input_scale`: the value of that dtype whose product is the stored one."""
        step = module.array("input_scale").astype(np.float32).reshape(-1)
        product = deq_scales(module.array("deq_scale"))
        if step.size != 1 or not np.isfinite(step).all() or step[0] <= 0:
            raise ValueError(f"{module.name}: input_scale is not one positive number")
        if product.size != shape_of(module)[-2] or not np.isfinite(product).all() or bool((product < 0).any()):
            raise ValueError(f"{module.name}: deq_scale is not one finite number for each output")
        return quotient(product, step[0], DTYPES[dtype]).reshape(-1, 1)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """See WeightFormat.replace. New scales do not reach `deq_scale`: give that role as well."""
        names = {"codes": PAYLOAD, "scales": "scale", "zeros": "zero_point", "group_index": "g_idx"}
        return rewrite(module, {names.get(name, name): values for name, values in parts.items()})


def deq_scales(stored: Array) -> Array:
    """[out] float32 from any of the stored spellings."""
    if stored.dtype == np.int64:
        return stored.astype(np.int32).view(np.float32).reshape(-1)
    return stored.astype(np.float32).reshape(-1)


def quotient(product: Array, step: np.float32, dtype: np.dtype[np.generic]) -> Array:
    """The numbers of a dtype whose product with `step` is the stored one; the nearest where no neighbour's is.

    Several float32 numbers may have one product. If 16-bit numbers give every one of them, the scales were 16-bit.
    """
    for narrow in (BFLOAT16, np.dtype(np.float16)) if dtype == np.float32 else ():
        found, is_exact = _nearest(product, step, narrow)
        if is_exact.all():
            return found.astype(dtype)
    return _nearest(product, step, dtype)[0]


def _nearest(product: Array, step: np.float32, dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
    """Quotients of a dtype, and which of them give the product exactly."""
    with np.errstate(over="ignore"):
        nearest = (product / step).astype(dtype)
    found, is_exact = nearest, nearest.astype(np.float32) * step == product
    for towards in (np.inf, 0):
        neighbour = np.nextafter(nearest, np.array(towards, dtype))
        hits = neighbour.astype(np.float32) * step == product
        found = np.where(~is_exact & hits, neighbour, found)
        is_exact |= hits
    return np.asarray(found, dtype), is_exact


def _contradictions(parts: Parts) -> list[Contradiction]:
    """Parts of another shape or dtype than the codes ask for."""
    out = parts["weight"].shape[0]
    scale, offset, step = parts.get("weight_scale"), parts.get("weight_offset"), parts.get("input_scale")
    found = []
    for role, part, dtypes in (("scale", scale, FLOATS), ("zero_point", offset, FLOATS | {"I8"})):
        want = (out,) if part is not None and part.shape == (out,) else (out, 1)
        found += part_contradictions(part, role, "shape", dtypes, want)
    found += part_contradictions(parts.get("deq_scale"), "deq_scale", "shape", FLOATS | {"I64"}, (out,))
    found += part_contradictions(parts.get("quant_bias"), "quant_bias", "shape", frozenset({"I32"}), (out,))
    one = step.shape if step is not None and num_elements(step.shape) == 1 else (1,)
    return [*found, *part_contradictions(step, "input_scale", "shape", FLOATS, one)]

"""torchao tensors, flattened by its safetensors support: the parameter's name, an underscore, the tensor's part.

    _weight_qdata       I8 | F8_E4M3   [out, in]
    _weight_scale       F32 | BF16     [out, 1], or [out, in / group]
    _weight_zero_point  I8             the scale's shape; all zero for symmetric weights

    w[o, i] = (code[o, i] - zero[o, g]) * scale[o, g]

Which tensor class wrote it stands in the file's `__metadata__` (`Int8Tensor`, `block_size` [1, in]); the shapes tell
the same. 4-bit tensors use layouts of their kernels: named, not read.
Source: torchao `prototype/safetensors`, `quantization/quantize_/workflows/int8`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import shape_contradiction
from degarble.formats.float8 import FLOAT8, SCALE_DTYPES, decode
from degarble.formats.float_agreement import disagreements, dtype_contradictions
from degarble.formats.interface import PAYLOAD, Axis, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"torchao"})


class TorchAo(WeightFormat):
    """torchao's int8 and float8 weights."""

    name: ClassVar[str] = "torchao"
    roles: ClassVar[Mapping[str, str]] = {
        "_weight_qdata": PAYLOAD,
        "_weight_scale": "scale",
        "_weight_zero_point": "zero_point",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, 1)),
        "scale": ((-2, 1), (-1, "group")),
        "zero_point": ((-2, 1), (-1, "group")),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """The name `_weight_qdata` is torchao's alone."""
        if "_weight_qdata" not in parts:
            return 0
        return 3 if "_weight_scale" in parts else 2

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        by_role = self.by_role(parts)
        payload, scale = by_role[PAYLOAD], by_role.get("scale")
        is_packed = payload.dtype not in FLOAT8 | {"I8"}
        group = _group(payload, scale)
        is_row = group is not None and group == payload.shape[-1]
        scheme = Scheme(
            method="torchao",
            type="float" if payload.dtype in FLOAT8 else "int",
            num_bits=None if is_packed else 8,
            strategy=None if group is None else "channel" if is_row else "group",
            group_size=None if is_row else group,
            activations=declared.activations if declared is not None else None,
        )
        found = disagreements(declared, scheme, METHODS)
        found += dtype_contradictions(by_role, {"scale": SCALE_DTYPES})
        zero = by_role.get("zero_point")
        if not is_packed and len(payload.shape) != 2:
            found.append(shape_contradiction("shape", PAYLOAD, "a matrix [out, in]", payload))
        elif not is_packed and scale is not None and group is None:
            found.append(shape_contradiction("shape", "scale", f"[{payload.shape[0]}, groups]", scale))
        if not is_packed and scale is not None and zero is not None and zero.shape != scale.shape:
            want = f"the scale's shape {list(scale.shape)}"
            found.append(shape_contradiction("zero_point", "zero_point", want, zero))
        return Form(
            format=self.name,
            scheme=scheme,
            shape=expected if is_packed else payload.shape,
            roles=self.role_suffixes(parts),
            missing=() if scale is not None else ("scale",),
            contradictions=tuple(found),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] int8, or raw float codes as uint8. Raises ValueError for packed weights."""
        dtype = module.parts[module.form.roles[PAYLOAD]].dtype
        if dtype in FLOAT8:
            return module.array(PAYLOAD).view(np.uint8)
        if dtype != "I8":
            raise ValueError(f"{module.name}: torchao's packed {dtype} weights are not read")
        return module.array(PAYLOAD)

    def scales(self, module: StoredModule) -> Array:
        """[out, groups] float32."""
        return module.array("scale").astype(np.float32)

    def zeros(self, module: StoredModule) -> Array | None:
        """[out, groups] int32; None where none are stored."""
        return module.array("zero_point").astype(np.int32) if module.part("zero_point") is not None else None

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32. Raises ValueError where the scale fits no grouping."""
        payload = module.parts[module.form.roles[PAYLOAD]]
        group = _group(payload, module.part("scale"))
        if group is None:
            raise ValueError(f"{module.name}: the scale's shape fits no grouping of the inputs")
        return (np.arange(payload.shape[-1]) // group).astype(np.int32)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32."""
        codes, index, zeros = self.codes(module), self.group_index(module), self.zeros(module)
        dtype = module.parts[module.form.roles[PAYLOAD]].dtype
        values = decode(codes, dtype) if dtype in FLOAT8 else codes.astype(np.float32)
        if zeros is not None:
            values = values - zeros[:, index].astype(np.float32)
        return np.asarray(values * self.scales(module)[:, index])

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes`, `scales` and `zeros` as above; other keys are roles whose stored values are given."""
        names = {"codes": PAYLOAD, "scales": "scale", "zeros": "zero_point"}
        return rewrite(module, {names.get(key, key): values for key, values in parts.items()})


def _group(payload: TensorInfo, scale: TensorInfo | None) -> int | None:
    """Inputs that share a scale; None if the shapes do not say."""
    if scale is None or len(payload.shape) != 2 or len(scale.shape) != 2 or scale.shape[0] != payload.shape[0]:
        return None
    groups, columns = scale.shape[1], payload.shape[1]
    return columns // groups if groups > 0 and columns > 0 and columns % groups == 0 else None

"""What NVFP4 and MXFP4 matrices share: E2M1 codes packed along the row, one small scale for every 16 or 32 inputs.

    payload  U8  [out, in / 2]            two codes a byte, low nibble first, see e2m1.py
    scale        [out, in / group]

The formats differ in group, in the scale's dtype, and in whether a global scale multiplies, divides or does not exist.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.tensor_data import Array
from degarble.formats import e2m1
from degarble.formats.agreement import shape_contradiction
from degarble.formats.float8 import SCALE_DTYPES
from degarble.formats.float_agreement import (
    disagreements,
    dtype_contradictions,
    group_contradictions,
    missing_roles,
    sharpened,
    stored_group,
)
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme


def dequantize(codes: Array, scales: Array, group: int, values: Array = e2m1.VALUES) -> Array:
    """Codes [out, in] and effective float32 scales [out, in / group] -> [out, in] float32."""
    index = np.arange(codes.shape[-1]) // group
    return np.asarray(values[codes] * scales[..., index])


def layout_of(parts: Parts, declared: Scheme | None) -> tuple[str, int]:
    """Which FP4 format file owns a module, and how sure that is; ("", 0) for none."""
    packed, weight = parts.get("weight_packed"), parts.get("weight")
    if packed is not None:
        return _packed_layout(parts, declared) if packed.dtype in ("U8", "I8") else ("", 0)
    if weight is None or weight.dtype not in ("U8", "I8") or "weight.absmax" in parts:
        return "", 0
    scale = parts.get("weight_scale")
    if "weight_scale_2" in parts or (scale is not None and scale.dtype == "F8_E4M3"):
        return "modelopt_nvfp4", 3
    if scale is None and "weight_scale_inv" in parts:
        return "deepseek_mxfp4", 3
    return _byte_layout(weight, scale, declared)


def _byte_layout(weight: TensorInfo, scale: TensorInfo | None, declared: Scheme | None) -> tuple[str, int]:
    """Bytes under `weight` whose scale is exponent bytes, or is gone and was declared."""
    if scale is not None and scale.dtype in ("U8", "F8_E8M0") and scale.shape and weight.shape:
        return ("quark_mxfp4", 3) if scale.shape[-1] * 32 == weight.shape[-1] * 2 else ("", 0)
    is_said = declared is not None and (declared.type, declared.num_bits) == ("float", 4)
    if scale is not None or declared is None or not is_said:
        return "", 0
    if declared.group_size == 32 and (declared.method == "quark" or declared.method.startswith("modelopt")):
        return "quark_mxfp4", 2
    return ("modelopt_nvfp4", 2) if declared.method.startswith("modelopt") else ("", 0)


def _packed_layout(parts: Parts, declared: Scheme | None) -> tuple[str, int]:
    """NVFP4 by its global scale or E4M3 scales, MXFP4 by exponent bytes; what is left, by the config."""
    scale = parts.get("weight_scale")
    if "weight_global_scale" in parts or (scale is not None and scale.dtype == "F8_E4M3"):
        return "nvfp4", 3
    said = _declared_layout(declared)
    if scale is not None and scale.dtype in ("U8", "F8_E8M0"):
        packed = parts["weight_packed"].shape
        fits = bool(scale.shape and packed) and scale.shape[-1] * 32 == packed[-1] * 2
        return ("mxfp4", 3) if fits or not said else (said, 3)
    if said:
        return said, 2
    return ("nvfp4", 2) if "input_global_scale" in parts else ("", 0)


def _declared_layout(declared: Scheme | None) -> str:
    """nvfp4 or mxfp4 as the config says; '' if it says neither."""
    if declared is None:
        return ""
    label = declared.format or ""
    if label.startswith(("nvfp4", "mxfp4")):
        return label[:5]
    if declared.type != "float" or declared.num_bits != 4:
        return ""
    return {16: "nvfp4", 32: "mxfp4"}.get(declared.group_size or 0, "")


class Fp4Matrix(WeightFormat):
    """Base of the packed E2M1 matrices; a subclass names its parts and its scale arithmetic."""

    group: ClassVar[int]
    scale_dtypes: ClassVar[frozenset[str]]
    methods: ClassVar[frozenset[str]]
    method: ClassVar[str]
    strategy: ClassVar[str]
    needed: ClassVar[tuple[str, ...]]
    static: ClassVar[tuple[str, ...]] = ("static",)
    values: ClassVar[Array] = e2m1.VALUES
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, 2)),
        "scale": ((-2, 1), (-1, "group")),
        "global_scale": ((-2, 1), None),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """See layout_of."""
        layout, strength = layout_of(parts, declared)
        return strength if layout == self.name else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        by_role = self.by_role(parts)
        packed = by_role[PAYLOAD].shape
        shape = (*packed[:-1], packed[-1] * 2) if packed else ()
        scheme = Scheme(
            method=declared.method if declared is not None and declared.method in self.methods else self.method,
            format=declared.format if declared is not None else None,
            type="float",
            num_bits=4,
            strategy=self.strategy,
            group_size=stored_group(shape, by_role.get("scale"), self.group),
            symmetric=True,
            activations=declared.activations if declared is not None else None,
        )
        return Form(
            format=self.name,
            scheme=scheme,
            shape=shape,
            roles=self.role_suffixes(parts),
            missing=missing_roles(by_role, self.needed, declared, self.static),
            contradictions=tuple(self._contradictions(by_role, shape, declared, scheme)),
        )

    def _contradictions(
        self, by_role: Mapping[str, TensorInfo], shape: tuple[int, ...], declared: Scheme | None, scheme: Scheme
    ) -> list[Contradiction]:
        scale, total = by_role.get("scale"), by_role.get("global_scale")
        found = disagreements(declared, scheme, self.methods)
        wide = {"global_scale": SCALE_DTYPES, "input_scale": SCALE_DTYPES}
        found += dtype_contradictions(by_role, {"scale": self.scale_dtypes, **wide})
        if len(shape) < 2:
            found.append(shape_contradiction("shape", PAYLOAD, "a matrix [out, in / 2]", by_role[PAYLOAD]))
        elif scale is not None:
            found = sharpened(found, group_contradictions(shape, scale, self.group))
        if total is not None and num_elements(total.shape) != 1 and total.shape[:1] != shape[:-2]:
            found.append(shape_contradiction("shape", "global_scale", "one number", total))
        return found

    def codes(self, module: StoredModule) -> Array:
        """[out, in] codes 0..15."""
        return e2m1.unpack(module.array(PAYLOAD))

    @abstractmethod
    def scales(self, module: StoredModule) -> Array:
        """[out, in / group] float32 with the global scale taken in."""

    @abstractmethod
    def stored_scales(self, module: StoredModule, scales: Array) -> Array:
        """Effective scales back to what the scale tensor holds."""

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32."""
        columns = module.parts[module.form.roles[PAYLOAD]].shape[-1] * 2
        return (np.arange(columns) // self.group).astype(np.int32)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32. Raises ValueError where the groups do not cover the row."""
        codes, scales = self.codes(module), self.scales(module)
        if scales.shape[-1] != -(-codes.shape[-1] // self.group):
            raise ValueError(f"{module.name}: {scales.shape[-1]} scales cannot cover {codes.shape[-1]} inputs")
        return dequantize(codes, scales, self.group, self.values)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` 0..15 and effective `scales`; other keys are roles whose stored values are given."""
        new = dict(parts)
        if "scales" in new:
            new["scale"] = self.stored_scales(module, new.pop("scales"))
        if "codes" in new:
            new[PAYLOAD] = e2m1.pack(new.pop("codes"))
        return rewrite(module, new)

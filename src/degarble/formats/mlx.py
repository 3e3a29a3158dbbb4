"""MLX affine quantisation: unsigned codes in one unbroken stream of bits, scale and offset for every group.

    weight   U32               [out, in * bits / 32]     2, 3, 4, 5, 6 or 8 bits, lowest bits first, see packing.py
    scales   BF16 | F16 | F32  [out, in / group]
    biases   the scales' dtype [out, in / group]         `qbiases` in transformers' Metal exports

    w[o, i] = code[o, i] * scale[o, g] + bias[o, g]      the bias is the value of code 0; a scale may be negative

`biases` (one a group) has nothing to do with `bias` (one a row). The width is not identifiable from packed columns
alone: 4 bits in groups of 32 look like 2 bits in groups of 64; the expected shape decides, else the config. 3, 5 and 6
bits fill 3, 5 and 3 bytes with 8, 8 and 4 codes, the same as one stream. MLX's newer modes (`mxfp4`, `nvfp4`, `mxfp8`:
scales U8, no biases) are not read. Sources: MLX `quantized/affine_quantize.cu`, transformers `metal_quantization.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import bits_of, shape_contradiction, shape_of
from degarble.formats.float8 import SCALE_DTYPES
from degarble.formats.float_agreement import disagreements, dtype_contradictions
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.packing import WORD_BITS, pack_words, unpack_words
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"mlx", "metal"})
WIDTHS = (2, 3, 4, 5, 6, 8)


def quantize(weight: Array, num_bits: int, group_size: int) -> tuple[Array, Array, Array]:
    """[out, in] -> codes uint8 [out, in], scales and offsets float32 [out, in / group], rounded to nearest."""
    groups = weight.astype(np.float32).reshape(weight.shape[0], -1, group_size)
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    scales = np.maximum((high - low) / np.float32((1 << num_bits) - 1), np.float32(1e-8))
    codes = np.rint((groups - low[..., None]) / scales[..., None]).clip(0, (1 << num_bits) - 1)
    return codes.astype(np.uint8).reshape(weight.shape), scales, low


def dequantize(codes: Array, scales: Array, biases: Array) -> Array:
    """[out, in] float32."""
    index = np.arange(codes.shape[-1]) // (codes.shape[-1] // scales.shape[-1])
    scaled = codes.astype(np.float32) * scales.astype(np.float32)[..., index]
    return np.asarray(scaled + biases.astype(np.float32)[..., index])


class Mlx(WeightFormat):
    """MLX affine weights."""

    name: ClassVar[str] = "mlx"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "scales": "scale",
        "biases": "offset",
        "qbiases": "offset",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, "words")),
        "scale": ((-2, 1), (-1, "group")),
        "offset": ((-2, 1), (-1, "group")),
    }
    missing_names: ClassVar[Mapping[str, str]] = {"offset": "biases"}

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """32-bit words named `weight` with floating-point scales or biases, or alone under an MLX config."""
        payload = parts.get("weight")
        if payload is None or payload.dtype != "U32":
            return 0
        scale = parts.get("scales")
        if "biases" in parts or "qbiases" in parts or (scale is not None and scale.dtype in SCALE_DTYPES):
            return 3
        return 2 if scale is None and declared is not None and declared.method in METHODS else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        by_role = self.by_role(parts)
        columns, bits = _columns_and_bits(by_role, declared, expected)
        payload, scale = by_role[PAYLOAD], by_role.get("scale")
        groups = scale.shape[-1] if scale is not None and scale.shape else None
        group = columns // groups if columns and groups and groups > 0 and columns % groups == 0 else None
        if scale is None and declared is not None:
            group = declared.group_size
        scheme = Scheme(
            method="mlx",
            format=declared.format if declared is not None else None,
            type="int",
            num_bits=bits,
            strategy="group",
            group_size=group,
            symmetric=False,
        )
        return Form(
            format=self.name,
            scheme=scheme,
            shape=(*payload.shape[:-1], columns) if columns and payload.shape else None,
            roles=self.role_suffixes(parts),
            missing=tuple(role for role in ("scale", "offset") if role not in by_role),
            contradictions=tuple(self._contradictions(by_role, declared, scheme, columns)),
        )

    def _contradictions(
        self, by_role: Mapping[str, TensorInfo], declared: Scheme | None, scheme: Scheme, columns: int | None
    ) -> Iterator[Contradiction]:
        payload, scale, offset = by_role[PAYLOAD], by_role.get("scale"), by_role.get("offset")
        yield from disagreements(declared, scheme, METHODS)
        yield from dtype_contradictions(by_role, {"scale": SCALE_DTYPES, "offset": SCALE_DTYPES})
        if len(payload.shape) < 2:
            yield shape_contradiction("shape", PAYLOAD, "a matrix [out, in * bits / 32]", payload)
        elif columns and scheme.num_bits is None:
            yield shape_contradiction("num_bits", PAYLOAD, f"a whole width for {columns} inputs", payload)
        if scale is not None and scale.shape[:-1] != payload.shape[:-1]:
            yield shape_contradiction("shape", "scale", f"{[*payload.shape[:-1], 'groups']}", scale)
        elif scale is not None and columns and scheme.group_size is None:
            yield shape_contradiction("group_size", "scale", f"groups that divide {columns} inputs", scale)
        if scale is not None and offset is not None and offset.shape != scale.shape:
            yield shape_contradiction("zero_point", "offset", f"the scale's shape {list(scale.shape)}", offset)

    def codes(self, module: StoredModule) -> Array:
        """[out, in] unsigned codes."""
        return unpack_words(module.array(PAYLOAD), bits_of(module), shape_of(module)[-1])

    def scales(self, module: StoredModule) -> Array:
        """[out, groups] float32."""
        return module.array("scale").astype(np.float32)

    def offsets(self, module: StoredModule) -> Array:
        """[out, groups] float32: the value of code 0. There is no zero point in units of codes."""
        return module.array("offset").astype(np.float32)

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32."""
        columns, scheme = shape_of(module)[-1], module.form.scheme
        if scheme is None or not scheme.group_size:
            raise ValueError(f"{module.name}: groups do not divide {columns} inputs")
        return (np.arange(columns) // scheme.group_size).astype(np.int32)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32."""
        self.group_index(module)
        return dequantize(self.codes(module), self.scales(module), self.offsets(module))

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` and `scales` as above; other keys (`offset`) are roles whose stored values are given."""
        new = dict(parts)
        if "codes" in new:
            new[PAYLOAD] = pack_words(new.pop("codes"), bits_of(module)).view(np.uint32)
        if "scales" in new:
            new["scale"] = new.pop("scales")
        return rewrite(module, new)


def _columns_and_bits(
    by_role: Mapping[str, TensorInfo], declared: Scheme | None, expected: tuple[int, ...] | None
) -> tuple[int | None, int | None]:
    """`in` from the architecture, else from declared group size, else from declared width; the width from both."""
    words = by_role[PAYLOAD].shape[-1] if by_role[PAYLOAD].shape else 0
    groups = by_role["scale"].shape[-1] if "scale" in by_role and by_role["scale"].shape else 0
    said_bits = declared.num_bits if declared is not None else None
    said_group = declared.group_size if declared is not None else None
    columns: int | None = None
    if expected:
        columns = expected[-1]
    elif groups > 0 and said_group:
        columns = groups * said_group
    elif said_bits:
        columns = words * WORD_BITS // said_bits
    if not columns or columns < 0 or words <= 0:
        return columns if columns and columns > 0 else None, None
    width, rest = divmod(words * WORD_BITS, columns)
    return columns, width if rest == 0 and width in WIDTHS else None

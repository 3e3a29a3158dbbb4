"""quanto: 8-bit codes and a scale per output row, below the parameter's own name.

    weight._data    I8 | F8_E4M3 | F8_E5M2   [out, in]
    weight._scale   BF16 | F16 | F32         [out, 1]
    input_scale, output_scale                []          1 unless activations were calibrated

    w[o, i] = code[o, i] * scale[o]

4- and 2-bit weights (`qint4`, `qint2`) are packed by other rules and carry `_shift`: they are named, not read.
Source: optimum-quanto `tensor/weights/qbytes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import shape_contradiction
from degarble.formats.float8 import FLOAT8, SCALE_DTYPES, decode
from degarble.formats.float_agreement import disagreements, dtype_contradictions, missing_roles
from degarble.formats.fp8 import align, strategy_of
from degarble.formats.interface import PAYLOAD, Axis, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"quanto"})


class Quanto(WeightFormat):
    """quanto's 8-bit integers and floats."""

    name: ClassVar[str] = "quanto"
    roles: ClassVar[Mapping[str, str]] = {
        "weight._data": PAYLOAD,
        "weight._scale": "scale",
        "weight._shift": "shift",
        "input_scale": "input_scale",
        "output_scale": "output_scale",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, 1)),
        "scale": ((-2, 1), None),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """The name `weight._data` is quanto's alone."""
        if "weight._data" not in parts:
            return 0
        return 3 if "weight._scale" in parts else 2

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        by_role = self.by_role(parts)
        payload, scale = by_role[PAYLOAD], by_role.get("scale")
        is_float, is_packed = payload.dtype in FLOAT8, payload.dtype not in FLOAT8 | {"I8"}
        strategy = strategy_of(scale, payload.shape, declared) if scale is not None else None
        scheme = Scheme(
            method="quanto",
            type="float" if is_float else "int",
            num_bits=None if is_packed else 8,
            strategy=None if is_packed else strategy,
            symmetric="shift" not in by_role,
            activations=declared.activations if declared is not None else None,
        )
        found = disagreements(declared, scheme, METHODS)
        found += dtype_contradictions(by_role, {"scale": SCALE_DTYPES})
        if not is_packed and len(payload.shape) < 2:
            found.append(shape_contradiction("shape", PAYLOAD, "a matrix [out, in]", payload))
        elif not is_packed and scale is not None and strategy is None:
            want = f"{[*payload.shape[:-1], 1]}, one per output row"
            found.append(shape_contradiction("shape", "scale", want, scale))
        return Form(
            format=self.name,
            scheme=scheme,
            shape=expected if is_packed else payload.shape,
            roles=self.role_suffixes(parts),
            missing=missing_roles(by_role, ("scale",), declared),
            contradictions=tuple(found),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] int8, or raw float codes as uint8. Raises ValueError for packed 4- and 2-bit weights."""
        stored = module.array(PAYLOAD)
        dtype = module.parts[module.form.roles[PAYLOAD]].dtype
        if dtype in FLOAT8:
            return stored.view(np.uint8)
        if dtype != "I8":
            raise ValueError(f"{module.name}: quanto's packed {dtype} weights are not read")
        return stored

    def scales(self, module: StoredModule) -> Array:
        """[out, 1] float32."""
        payload = module.parts[module.form.roles[PAYLOAD]]
        return align(module.array("scale"), payload.shape).astype(np.float32)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32."""
        codes, dtype = self.codes(module), module.parts[module.form.roles[PAYLOAD]].dtype
        values = decode(codes, dtype) if dtype in FLOAT8 else codes.astype(np.float32)
        return np.asarray(values * self.scales(module))

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` and `scales` as above; other keys are roles whose stored values are given."""
        names = {"codes": PAYLOAD, "scales": "scale"}
        return rewrite(module, {names.get(key, key): values for key, values in parts.items()})

"""LLM.int8 of bitsandbytes: int8 rows with their largest magnitude beside them.

    weight         I8   [out, in]
    SCB            F32  [out]         amax of the row, not the scale: the scale is SCB / 127
    weight_format  U8   []            0: row-major

    w[o, i] = (code[o, i] * SCB[o]) * (1 / 127)

Taken for a scale, SCB makes weights 127 times too large. Sources: bitsandbytes `functional.py`
(`int8_vectorwise_dequant`), transformers `integrations/bitsandbytes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats import int8_rows
from degarble.formats.agreement import declared_against_stored, shape_contradiction
from degarble.formats.interface import PAYLOAD, Axis, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

METHODS = frozenset({"bitsandbytes"})
ONE_127TH = np.float32(7.874015718698502e-3)
"""bitsandbytes multiplies by this constant rather than dividing by 127."""


class BitsandbytesInt8(WeightFormat):
    """LLM.int8."""

    name: ClassVar[str] = "bitsandbytes_int8"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "SCB": "scale",
        "weight_format": "layout",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, 1)),
        "scale": ((-1, 1), None),
    }

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """An int8 weight with SCB, or alone under a bitsandbytes config."""
        payload = parts.get("weight")
        if payload is None or payload.dtype != "I8":
            return 0
        if "SCB" in parts or "weight_format" in parts:
            return 3
        return 2 if len(parts) <= 2 and declared is not None and declared.method in METHODS else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        payload, scale = parts["weight"], parts.get("SCB")
        scheme = Scheme(method="bitsandbytes", type="int", num_bits=8, strategy="channel", symmetric=True)
        found = declared_against_stored(declared, scheme, methods=METHODS)
        if len(payload.shape) != 2:
            found.append(shape_contradiction("shape", PAYLOAD, "a matrix [out, in]", payload))
        elif scale is not None and scale.shape not in (payload.shape[:1], (*payload.shape[:1], 1)):
            found.append(shape_contradiction("shape", "scale", f"{list(payload.shape[:1])}, one per output row", scale))
        return Form(
            format=self.name,
            scheme=scheme,
            shape=payload.shape,
            roles=self.role_suffixes(parts),
            missing=() if scale is not None else ("scale",),
            contradictions=tuple(found),
        )

    def codes(self, module: StoredModule) -> Array:
        """[out, in] int8."""
        return module.array(PAYLOAD)

    def scales(self, module: StoredModule) -> Array:
        """[out, 1] float32: SCB / 127."""
        return np.asarray(module.array("scale").reshape(-1, 1).astype(np.float32) * ONE_127TH)

    def group_index(self, module: StoredModule) -> Array:
        """[in] int32: one group."""
        return np.zeros(module.parts["weight"].shape[-1], np.int32)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32: codes times SCB first, then times 1/127, as the tool does."""
        row_max = module.array("scale").reshape(-1, 1)
        return np.asarray(int8_rows.dequantize(self.codes(module), row_max) * ONE_127TH)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` int8, `scales` as given by `scales()`; other keys are roles whose stored values are given."""
        new = dict(parts)
        if "scales" in new:
            new["scale"] = new.pop("scales") / ONE_127TH
        if "codes" in new:
            new[PAYLOAD] = new.pop("codes")
        return rewrite(module, new)

"""Plain floating-point weights: what is stored is the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.interface import PAYLOAD, Axis, Form, Parts, StoredModule, WeightFormat
from degarble.formats.scheme import Scheme

PLAIN_DTYPES = frozenset({"F16", "BF16", "F32", "F64", "GGUF:F16", "GGUF:BF16", "GGUF:F32", "GGUF:F64"})

CODE_DTYPES = frozenset({"U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4"})
"""A bare parameter in one of these holds codes, not values."""


class Plain(WeightFormat):
    """`weight` in fp16, bf16, fp32 or fp64, with or without a bias."""

    name: ClassVar[str] = "plain"
    roles: ClassVar[Mapping[str, str]] = {"weight": PAYLOAD, "": PAYLOAD, "bias": "bias"}
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {PAYLOAD: ((-2, 1), (-1, 1))}

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """A floating-point `weight`, or a bare parameter such as `e_score_correction_bias`.

        Companions beside it do not make it quantised. A bias whose weight is gone is plain too: it is what it is.
        """
        payload = parts.get("weight")
        if payload is None and "" in parts:
            return 2 if parts[""].dtype not in CODE_DTYPES else 0
        if payload is None:
            return 1 if set(parts) == {"bias"} else 0
        return 2 if payload.dtype in PLAIN_DTYPES else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        payload = parts.get("weight") or parts.get("")
        shape = payload.shape if payload is not None else None
        return Form(format=self.name, scheme=None, shape=shape, roles=self.role_suffixes(parts))

    def codes(self, module: StoredModule) -> Array:
        """The values themselves, in their dtype."""
        return module.array(PAYLOAD)

    def scales(self, module: StoredModule) -> Array:
        """One scale of 1 a row."""
        return np.ones((module.array(PAYLOAD).shape[0], 1), np.float32)

    def dequantize(self, module: StoredModule) -> Array:
        """The values as float32."""
        return module.array(PAYLOAD).astype(np.float32)

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` are the new values."""
        info = module.parts[module.form.roles[PAYLOAD]]
        return {info.name: parts["codes"].astype(module.array(PAYLOAD).dtype)}

"""ExLlama's EXL2 and EXL3: an average width, and another one for the head.

    {"quant_method": "exl3", "version": "0.0.1", "bits": 4.0, "head_bits": 6, "calibration": {…}, "tensor_storage": {…}}

Modules differ in width, so `bits` is a mean and never a promise about one of them. Source: exllamav2 `convert_exl2.py`,
exllamav3 `conversion/convert_model.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.config_object import ConfigObject
from degarble.methods.interface import Declaration, Method


class ExlMethod(Method):
    """Config of EXL2 and EXL3."""

    names: ClassVar[tuple[str, ...]] = ("exl2", "exl3")

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        config = ConfigObject(raw, file=file, key=key)
        method = "exl3" if (config.text("quant_method") or "").lower() == "exl3" else "exl2"
        bits, head_bits = raw.get("bits"), raw.get("head_bits")
        config.ill_typed += [
            config.path(name)
            for name, value in (("bits", bits), ("head_bits", head_bits))
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float))
        ]
        return Declaration(
            method=method,
            file=file,
            key=key,
            raw=raw,
            default=Scheme(
                method=method,
                type="codebook" if method == "exl3" else "int",
                strategy="tensor" if method == "exl3" else "group",
            ),
            version=config.text("version"),
            implicit_plain=("embed_tokens", "norm", "mlp.gate"),
            ill_typed=tuple(config.ill_typed),
            notes={"mean_bits": bits, "head_bits": head_bits},
        )

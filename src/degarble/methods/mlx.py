"""MLX: `quantization` at the top level of config.json, with exceptions under full module names.

    "quantization": {"group_size": 64, "bits": 4, "mode": "affine",
                     "model.layers.0.mlp.down_proj": {"group_size": 32, "bits": 8}, "lm_head": false}

`false` leaves a module plain, `true` gives it the defaults. Embeddings and head are quantised like everything else.
Newer files repeat the object as `quantization_config`. transformers' Metal export says `quant_method: metal`.
Source: mlx-lm `utils.py`, transformers `MetalConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.config_object import ConfigObject
from degarble.methods.interface import Declaration, Method
from degarble.methods.per_module import rules_of

OWN_KEYS = frozenset({"group_size", "bits", "mode", "quant_method", "modules_to_not_convert", "dequantize"})

MODES: Mapping[str, tuple[str, int, int]] = {
    "mxfp4": ("float", 4, 32),
    "nvfp4": ("float", 4, 16),
    "mxfp8": ("float", 8, 32),
}
"""mode -> kind of number, bits, group size, where the mode fixes them."""


class MlxMethod(Method):
    """Config of MLX."""

    names: ClassVar[tuple[str, ...]] = ("mlx", "metal")

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        config = ConfigObject(raw, file=file, key=key)
        default = _scheme(config, None)
        table: dict[str, Scheme | None] = {}
        for module, entry in raw.items():
            if module in OWN_KEYS:
                continue
            if isinstance(entry, bool):
                table[module] = default if entry else None
            elif isinstance(entry, dict):
                inner = ConfigObject(entry, file=file, key=config.path(module))
                table[module] = _scheme(inner, default)
                config.ill_typed += inner.ill_typed
            elif entry is not None:
                config.ill_typed.append(config.path(module))
        return Declaration(
            method="mlx",
            file=file,
            key=key,
            raw=raw,
            default=default,
            rules=rules_of(table, key),
            skips=config.skips("modules_to_not_convert"),
            implicit_plain=("norm", "input_layernorm", "post_attention_layernorm"),
            ill_typed=tuple(config.ill_typed),
        )


def _scheme(config: ConfigObject, default: Scheme | None) -> Scheme:
    """Mode, width and group of one object; what it leaves out comes from the defaults."""
    mode = config.text("mode") or (default.format if default is not None else None) or "affine"
    number, bits, group = MODES.get(mode, ("int", None, None))
    group_size = config.integer("group_size") or group or (default.group_size if default is not None else None)
    return Scheme(
        method="mlx",
        format=mode,
        type=number,
        num_bits=config.integer("bits") or bits or (default.num_bits if default is not None else None),
        strategy="group" if group_size else None,
        group_size=group_size,
        symmetric=number != "int",
    )

"""quanto: a `quantization_config` with widths, or the sidecar `quanto_qmap.json` with one entry a module.

    config.json        {"quant_method": "quanto", "weights": "int8", "activations": null, "modules_to_not_convert": []}
    quanto_qmap.json   {"model.layers.0.mlp.up_proj": {"weights": "qint8", "activations": "none"}, …}

The sidecar is the whole file, has no `quant_method`, and names only quantised modules. Source: transformers
`QuantoConfig`, optimum-quanto `quantize.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.config_object import ConfigObject
from degarble.methods.interface import Declaration, Method
from degarble.methods.per_module import rules_of

SIDECAR = "quanto_qmap.json"

DTYPES: Mapping[str, tuple[str, int]] = {
    "int2": ("int", 2),
    "int4": ("int", 4),
    "int8": ("int", 8),
    "float8": ("float", 8),
    "float8_e4m3fn": ("float", 8),
    "float8_e4m3fnuz": ("float", 8),
    "float8_e5m2": ("float", 8),
}
"""quanto's names without their leading `q`."""


class QuantoMethod(Method):
    """Config and sidecar of quanto."""

    names: ClassVar[tuple[str, ...]] = ("quanto",)

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        config = ConfigObject(raw, file=file, key=key)
        if "quant_method" not in raw and "weights" not in raw:
            return _sidecar(config)
        default = scheme_of(config.text("weights") or "int8", config.text("activations"))
        return Declaration(
            method="quanto",
            file=file,
            key=key,
            raw=raw,
            default=default,
            skips=config.skips("modules_to_not_convert"),
            implicit_plain=("lm_head", "embed_tokens"),
            ill_typed=tuple(config.ill_typed),
        )


def scheme_of(weights: str, activations: str | None) -> Scheme | None:
    """The scheme of one entry; None for weights that stay plain or a name that is not known."""
    known = DTYPES.get(weights.removeprefix("q"))
    if known is None:
        return None
    number, bits = known
    return Scheme(
        method="quanto",
        type=number,
        num_bits=bits,
        strategy="channel" if bits == 8 else None,
        activations=None if activations in (None, "none") else "static",
    )


def _sidecar(config: ConfigObject) -> Declaration:
    table: dict[str, Scheme | None] = {}
    ill_typed: list[str] = []
    for module, entry in config.raw.items():
        weights = entry.get("weights") if isinstance(entry, dict) else None
        activations = entry.get("activations") if isinstance(entry, dict) else None
        if not isinstance(weights, str) or not isinstance(activations, str | None):
            ill_typed.append(config.path(module))
        else:
            table[module] = scheme_of(weights, activations)
    return Declaration(
        method="quanto",
        file=config.file,
        key=config.key,
        raw=config.raw,
        default=None,
        rules=rules_of(table, config.key),
        implicit_plain=("lm_head", "embed_tokens"),
        sidecar=True,
        ill_typed=tuple(ill_typed),
    )

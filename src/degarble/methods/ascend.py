"""Ascend: `quant_model_description.json`, where ModelSlim says of every tensor which kind it is.

    {"model_quant_type": "W8A8", "version": "1.0.0",
     "model.layers.0.self_attn.q_proj.weight": "W8A8",      "….weight_scale": "W8A8",  "….deq_scale": "W8A8",
     "model.layers.0.mlp.up_proj.weight": "W8A8_DYNAMIC",   "model.embed_tokens.weight": "FLOAT"}

The file is what the engine opens (`AscendQuantConfig.get_config_filenames`); config.json says nothing. Only weights are
read here: a companion shares its weight's kind. Sources: msmodelslim's savers, vllm-ascend `quantization`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.config_object import ConfigObject
from degarble.methods.interface import Declaration, Method
from degarble.methods.per_module import rules_of

KIND = re.compile(r"W(?P<bits>\d{1,2})A(?P<activations>\d{1,2})(?P<rest>_[A-Z0-9_]{1,24})?\Z")
PLAIN = "FLOAT"
WEIGHT = ".weight"


class AscendMethod(Method):
    """ModelSlim's description file."""

    names: ClassVar[tuple[str, ...]] = ("ascend",)

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        config = ConfigObject(raw, file=file, key=key)
        table: dict[str, Scheme | None] = {}
        ill_typed: list[str] = []
        for name, kind in raw.items():
            if not name.endswith(WEIGHT):
                continue
            known = KIND.match(kind) if isinstance(kind, str) else None
            if known is not None:
                table[name.removesuffix(WEIGHT)] = _scheme(known)
            elif kind == PLAIN:
                table[name.removesuffix(WEIGHT)] = None
            else:
                ill_typed.append(config.path(name))
        return Declaration(
            method="ascend",
            file=file,
            key=key,
            raw=raw,
            default=None,
            rules=rules_of(table, key),
            version=config.text("version"),
            sidecar=True,
            ill_typed=tuple(ill_typed),
        )


def _scheme(kind: re.Match[str]) -> Scheme:
    """`W8A8` has static activations, `W8A8_DYNAMIC` a scale for each token, `W8A16` none."""
    bits, rest = int(kind["bits"]), kind["rest"] or ""
    dynamic = "dynamic" if "DYNAMIC" in rest else "static"
    return Scheme(
        method="ascend",
        type="int" if "FP" not in rest else "float",
        num_bits=bits,
        strategy="channel" if bits == 8 else None,
        symmetric=True if bits == 8 else None,
        activations=None if int(kind["activations"]) == 16 else dynamic,
    )

"""gpt-oss's own MXFP4: only the experts' two projections are quantised.

    {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
     "model.embed_tokens", "lm_head"]}

Everything outside `experts` stays bf16 whether the list names it or not. Source: transformers `Mxfp4Config`,
`quantizer_mxfp4.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.config_object import ConfigObject
from degarble.methods.fp8 import is_routed_expert
from degarble.methods.interface import Declaration, Method, ModuleRule

EXPERTS = Scheme(method="mxfp4", type="float", num_bits=4, strategy="group", group_size=32, symmetric=True)


class Mxfp4Method(Method):
    """Config of gpt-oss."""

    names: ClassVar[tuple[str, ...]] = ("mxfp4",)

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare. No default: a linear outside the experts is plain."""
        config = ConfigObject(raw, file=file, key=key)
        skips = config.skips("modules_to_not_convert")
        return Declaration(
            method="mxfp4",
            file=file,
            key=key,
            raw=raw,
            default=None,
            rules=(ModuleRule(key=config.path("quant_method"), matches=is_routed_expert, scheme=EXPERTS),),
            skips=skips,
            implicit_plain=("lm_head", "embed_tokens", "mlp.router", "norm", "sinks"),
            ill_typed=tuple(config.ill_typed),
        )

"""The config of AWQ checkpoints: AutoAWQ, GPTQModel and auto-round's export to them.

    {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true, "version": "gemm",
     "modules_to_not_convert": null}

AutoAWQ's own `quant_config.json` spells the same as `w_bit` and `q_group_size`. `version` chooses the packing: `gemm`
(along the output axis), `gemv` (along the input axis), others for kernels that repack at load. The head is outside the
blocks that AWQ quantises; routers are not, and have to be listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.dynamic import read_dynamic
from degarble.methods.fields import Fields
from degarble.methods.gptq import strategy_for, tool_version
from degarble.methods.interface import Declaration, Method


class AwqMethod(Method):
    """`quant_method: awq`, or a `quant_config.json`."""

    names: ClassVar[tuple[str, ...]] = ("awq", "autoawq")

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        fields = Fields(raw, file=file, key=key)
        default = _scheme(fields, None)
        dynamic = read_dynamic(fields, lambda values: _scheme(values, default))
        return Declaration(
            method="awq",
            file=file,
            key=key,
            raw=raw,
            default=default,
            rules=dynamic.rules,
            skips=(*dynamic.skips, *fields.skips("modules_to_not_convert")),
            implicit_plain=("embed_tokens",) if fields.boolean("lm_head") else ("lm_head", "embed_tokens"),
            version=tool_version(fields),
            sidecar=file != "config.json",
            ill_typed=fields.faults,
            notes={"unusable_patterns": dynamic.unusable},
        )


def _scheme(fields: Fields, default: Scheme | None) -> Scheme:
    """The keys of the config or of one override; what an override leaves out is taken from the default."""
    bits, size = fields.num_bits("bits", "w_bit"), fields.group_size("group_size", "q_group_size")
    zero_point, symmetric = fields.boolean("zero_point"), fields.boolean("sym")
    label = fields.first_text("version", "format", "checkpoint_format")
    base = default or Scheme(method="awq")
    return Scheme(
        method="awq",
        format=label.lower() if label else base.format,
        type="int",
        num_bits=bits or base.num_bits,
        strategy=strategy_for(size) or base.strategy,
        group_size=(size if size > 0 else None) if size is not None else base.group_size,
        symmetric=not zero_point if zero_point is not None else base.symmetric if symmetric is None else symmetric,
    )

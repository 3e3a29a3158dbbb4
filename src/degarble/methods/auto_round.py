"""The config of auto-round's own format: GPTQ or AWQ tensors under another label.

    {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": true, "packing_format": "auto_round:auto_gptq",
     "block_name_to_quantize": "model.layers", "extra_config": {"lm_head": {"bits": 16}, ".*gate.*": {"bits": 8}}}

`packing_format` names the layout: with `awq` in it AWQ GEMM, else GPTQ, zero points minus one. The schemes say `gptq`
or `awq` accordingly, since that is what the tensors must be. `extra_config` overrides single modules, first by whole
name, then, for keys with regular-expression signs, by a match anywhere; 16 bits and more mean plain.
Source: vLLM `quantization/inc.py` (`get_layer_config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.engines.pattern_set import Pattern
from degarble.formats.scheme import Scheme
from degarble.methods.fields import Fields
from degarble.methods.gptq import strategy_for, tool_version
from degarble.methods.interface import Declaration, Method, ModuleRule
from degarble.methods.patterns import pattern_rules
from degarble.methods.per_module import rules_of

PLAIN_BITS = 16
SIGNS = frozenset("*+?^$()[]{}|\\")
"""A key with one of these is a regular expression."""


class AutoRoundMethod(Method):
    """`quant_method: auto-round`."""

    names: ClassVar[tuple[str, ...]] = ("auto-round", "auto_round", "autoround", "intel/auto-round", "inc")

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        fields, unusable = Fields(raw, file=file, key=key), list[str]()
        default = _scheme(fields, None)
        rules = _extra_rules(fields, default, unusable)
        return Declaration(
            method="auto-round",
            file=file,
            key=key,
            raw=raw,
            default=default,
            rules=rules,
            implicit_plain=("lm_head", "embed_tokens") if not _covers_head(fields) else ("embed_tokens",),
            version=tool_version(fields),
            sidecar=file != "config.json",
            ill_typed=fields.faults,
            notes={"unusable_patterns": unusable, "blocks": fields.raw.get("block_name_to_quantize")},
        )


def _scheme(fields: Fields, default: Scheme | None) -> Scheme | None:
    """The keys of the config or of one override; None for a module that stays plain."""
    bits, size = fields.num_bits("bits"), fields.group_size("group_size")
    symmetric, act_bits = fields.boolean("sym"), fields.num_bits("act_bits")
    packing, data_type = (fields.text("packing_format") or "").lower(), (fields.text("data_type") or "").lower()
    if bits is not None and bits >= PLAIN_BITS:
        return None
    base = default or Scheme(method="awq" if "awq" in packing else "gptq", type="int")
    floating = "fp" in data_type or "float" in data_type
    return Scheme(
        method=base.method,
        format=base.format or _label(packing),
        type="float" if floating else "int" if data_type else base.type,
        num_bits=bits or base.num_bits,
        strategy=strategy_for(size) or base.strategy,
        group_size=(size if size > 0 else None) if size is not None else base.group_size,
        symmetric=base.symmetric if symmetric is None else symmetric,
        activations="dynamic" if act_bits is not None and act_bits < PLAIN_BITS else base.activations,
    )


def _label(packing: str) -> str | None:
    """The layout's usual name; GPTQ's own if auto-round names no other."""
    return "gemm" if "awq" in packing else "gptq" if "gptq" in packing or packing in ("", "auto_round") else packing


def _extra_rules(fields: Fields, default: Scheme | None, unusable: list[str]) -> tuple[ModuleRule, ...]:
    where = fields.path("extra_config")
    extra = [(name, _scheme(values, default)) for name, values in fields.objects("extra_config")]
    patterns = [(Pattern(name, f".*(?:{name})"), scheme) for name, scheme in extra if SIGNS & set(name)]
    return (*rules_of(dict(extra), where), *pattern_rules(where, patterns, unusable))


def _covers_head(fields: Fields) -> bool:
    """Whether the head is among the modules with a width of their own."""
    extra = fields.raw.get("extra_config")
    return isinstance(extra, Mapping) and "lm_head" in extra

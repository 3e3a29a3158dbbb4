"""The config of GPTQ checkpoints: AutoGPTQ, GPTQModel, optimum, and auto-round's export to them.

    {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false, "sym": true, "checkpoint_format": "gptq"}

AutoGPTQ wrote it to `quantize_config.json` only, without `quant_method`. `group_size` -1 is one scale a row.
`desc_act` means that groups are shuffled and a g_idx is needed. `checkpoint_format` (or `format`) tells how zero points
are stored: minus one for `gptq`, as they are for `gptq_v2`; absent means `gptq`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.dynamic import read_dynamic
from degarble.methods.fields import Fields
from degarble.methods.interface import Declaration, Method, ModuleRule
from degarble.methods.patterns import ending_rule

NEVER_QUANTIZED = ("embed_tokens", "mlp.gate", "block_sparse_moe.gate", "mlp.shared_expert_gate", "router")
"""GPTQ tools quantise the linears that their model definitions list: embeddings and routers are never among them."""

NOTED = ("desc_act", "static_groups", "true_sequential", "checkpoint_format", "format", "pack_dtype")


class GptqMethod(Method):
    """`quant_method: gptq`, or a `quantize_config.json`."""

    names: ClassVar[tuple[str, ...]] = ("gptq", "gptqmodel")

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        fields = Fields(raw, file=file, key=key)
        default = _scheme(fields, None)
        dynamic = read_dynamic(fields, lambda values: _scheme(values, default))
        head = () if fields.boolean("lm_head") else ("lm_head",)
        return Declaration(
            method="gptq",
            file=file,
            key=key,
            raw=raw,
            default=default,
            rules=(*dynamic.rules, *_listed_only(fields)),
            skips=(*dynamic.skips, *fields.skips("modules_to_not_convert")),
            implicit_plain=(*head, *NEVER_QUANTIZED),
            version=tool_version(fields),
            sidecar=file != "config.json",
            ill_typed=fields.faults,
            notes={name: raw[name] for name in NOTED if name in raw} | {"unusable_patterns": dynamic.unusable},
        )


def _scheme(fields: Fields, default: Scheme | None) -> Scheme:
    """The keys of the config or of one override; what an override leaves out is taken from the default."""
    bits, size = fields.num_bits("bits", "w_bit"), fields.group_size("group_size", "q_group_size")
    symmetric, order = fields.boolean("sym"), fields.boolean("desc_act")
    label = fields.first_text("checkpoint_format", "format")
    base = default or Scheme(method="gptq")
    return Scheme(
        method="gptq",
        format=label.lower() if label else "marlin" if fields.boolean("is_marlin_format") else base.format,
        type="int",
        num_bits=bits or base.num_bits,
        strategy=strategy_for(size) or base.strategy,
        group_size=(size if size > 0 else None) if size is not None else base.group_size,
        symmetric=base.symmetric if symmetric is None else symmetric,
        act_order=base.act_order if order is None else "group" if order else None,
    )


def strategy_for(group_size: int | None) -> str | None:
    """`group` for a size, `channel` for -1."""
    return None if group_size is None else "group" if group_size > 0 else "channel"


def tool_version(fields: Fields) -> str | None:
    """`7.7.0` of `meta.quantizer: ["gptqmodel:7.7.0"]`, or auto-round's own key."""
    meta = fields.inner("meta")
    quantizer = meta.strings("quantizer") if meta is not None else ()
    written = next((entry.partition(":")[2] for entry in quantizer if ":" in entry), None)
    return written or fields.text("autoround_version")


def _listed_only(fields: Fields) -> tuple[ModuleRule, ...]:
    """optimum's list of lists: linears that it does not name stay plain."""
    name = "modules_in_block_to_quantize"
    groups = fields.raw.get(name)
    if groups is None:
        return ()
    listed = groups if isinstance(groups, list) else []
    flat = [ending for group in listed for ending in (group if isinstance(group, list) else [group])]
    endings = [ending for ending in flat if isinstance(ending, str) and ending]
    if not endings or len(endings) != len(flat):
        fields.reject(name)
    return (ending_rule(fields.path(name), endings, None, invert=True),) if endings else ()

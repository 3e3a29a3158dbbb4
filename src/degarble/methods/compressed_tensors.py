"""The config of compressed-tensors (llm-compressor): groups of targets, each with a scheme.

    {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head", "re:.*mlp.gate$"],
     "config_groups": {"group_0": {"targets": ["Linear"], "format": null, "weights": {"num_bits": 4, "type": "int",
        "strategy": "group", "group_size": 128, "symmetric": true, "actorder": null}, "input_activations": null}},
     "kv_cache_scheme": null}

A target is a whole name, `re:` and a pattern that matches from the start, or a class name. Names come before
patterns, patterns before classes, each in alphabetical order, whatever group they stand in. Of the classes only
`Linear` (and vLLM's `LinearBase`) can be told from module names; it gives the default. The method has no implicit
exceptions: head and routers are quantised unless `ignore` lists them.
Source: compressed-tensors `quantization/quant_args.py`, `utils/match.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from degarble.engines.pattern_set import Pattern
from degarble.formats.scheme import Scheme
from degarble.methods.fields import Fields
from degarble.methods.interface import Declaration, Method, ModuleRule
from degarble.methods.patterns import ending_rule, pattern_rules
from degarble.methods.per_module import rules_of

_OLD_BLOCK = re.compile("[1-9][0-9]{0,5}x[1-9][0-9]{0,5}")
LINEAR = frozenset({"Linear", "LinearBase"})
EMBEDDING = frozenset({"Embedding", "VocabParallelEmbedding"})
ACT_ORDERS: Mapping[str, str] = {"group": "group", "dynamic": "group", "weight": "weight", "static": "static"}
"""As written, except for the old name of `group`."""


class CompressedTensorsMethod(Method):
    """`quant_method: compressed-tensors`."""

    names: ClassVar[tuple[str, ...]] = ("compressed-tensors", "compressed_tensors")

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        fields, unusable = Fields(raw, file=file, key=key), list[str]()
        groups = [(name, group, _scheme(group, fields)) for name, group in fields.objects("config_groups")]
        targets = {target: scheme for _, group, scheme in groups for target in group.strings("targets")}
        kv_cache = fields.inner("kv_cache_scheme")
        classes = [target for target in targets if _is_class(target)]
        return Declaration(
            method="compressed-tensors",
            file=file,
            key=key,
            raw=raw,
            default=next((targets[name] for name in sorted(classes) if name in LINEAR), None),
            rules=_rules(targets, fields.path("config_groups"), unusable),
            skips=fields.skips("ignore"),
            kv_cache=args_scheme(kv_cache, "compressed-tensors") if kv_cache is not None else None,
            version=fields.text("version"),
            sidecar=file != "config.json",
            ill_typed=fields.faults,
            notes={
                "unusable_patterns": unusable,
                "classes": tuple(classes),
                "actorder": {name: order for name, group, _ in groups if (order := _written_order(group)) is not None},
                "status": raw.get("quantization_status"),
                "sparsity": raw.get("sparsity_config") or None,
            },
        )


def _is_class(target: str) -> bool:
    """Class names have no dot and start with a capital."""
    return target[:1].isupper() and target.isidentifier()


def _rules(targets: Mapping[str, Scheme | None], key: str, unusable: list[str]) -> tuple[ModuleRule, ...]:
    """Names, then patterns; an embedding class last."""
    ordered = sorted(targets.items())
    names = [(name, scheme) for name, scheme in ordered if not name.startswith("re:") and not _is_class(name)]
    patterns = [(Pattern(name, name[3:]), scheme) for name, scheme in ordered if name.startswith("re:")]
    embeddings = [scheme for name, scheme in ordered if name in EMBEDDING]
    last = [ending_rule(key, ("embed_tokens", "wte"), scheme) for scheme in embeddings[:1]]
    return (*rules_of(dict(names), key), *pattern_rules(key, patterns, unusable), *last)


def _scheme(group: Fields, whole: Fields) -> Scheme | None:
    """The scheme of one group; None if its weights stay plain."""
    weights, inputs = group.inner("weights"), group.inner("input_activations")
    if weights is None:
        return None
    label = group.text("format") or whole.text("format")
    return args_scheme(weights, "compressed-tensors", label=label, activations=_activations(inputs))


def args_scheme(args: Fields, method: str, *, label: str | None = None, activations: str | None = None) -> Scheme:
    """One `QuantizationArgs` object. A strategy that is not written follows from the group size, as the tool infers."""
    size, block = args.group_size("group_size"), args.raw.get("block_structure")
    strategy = args.text("strategy")
    if strategy is None:
        strategy = "tensor" if size is None else "group" if size > 0 else "channel"
    return Scheme(
        method=method,
        format=label,
        type=args.text("type"),
        num_bits=args.num_bits("num_bits"),
        strategy=strategy,
        group_size=size if size is not None and size > 0 else None,
        block_shape=_block_shape(args, block),
        symmetric=args.boolean("symmetric"),
        act_order=_act_order(args),
        activations=activations,
    )


def _block_shape(args: Fields, block: object) -> tuple[int, int] | None:
    """[rows, columns], or the old spelling `128x128`."""
    if block is None:
        return None
    if isinstance(block, str) and _OLD_BLOCK.fullmatch(block):
        rows, _, columns = block.partition("x")
        return int(rows), int(columns)
    if not isinstance(block, str):
        return args.pair("block_structure")
    args.reject("block_structure")
    return None


def _act_order(args: Fields) -> str | None:
    value = args.raw.get("actorder")
    if isinstance(value, bool):
        return "group" if value else None
    if value is None or (isinstance(value, str) and value.lower() in ACT_ORDERS):
        return ACT_ORDERS[value.lower()] if value else None
    args.reject("actorder")
    return None


def _written_order(group: Fields) -> object:
    """`actorder` as it stands in the file."""
    weights = group.raw.get("weights")
    return weights.get("actorder") if isinstance(weights, Mapping) else None


def _activations(inputs: Fields | None) -> str | None:
    """`dynamic: true | false | "local"`, of which the latter two need stored scales."""
    if inputs is None:
        return None
    dynamic = inputs.raw.get("dynamic")
    if dynamic == "local":
        return "local"
    return "dynamic" if inputs.boolean("dynamic") else "static"

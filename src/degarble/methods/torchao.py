"""torchao: the config is the tensor class's own configuration, serialised.

    {"quant_method": "torchao",
     "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {"group_size": null}}},
     "modules_to_not_convert": null, "include_input_output_embeddings": false}

Older files hold a plain string (`int8_weight_only`). `FqnToConfig` names a configuration for each module; keys with
`re:` are regular expressions, matched in full and with a time limit. Source: transformers `TorchAoConfig`, torchao
`quantization/quant_api.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from degarble.formats.scheme import Scheme
from degarble.methods.config_object import ConfigObject, is_count
from degarble.methods.interface import Declaration, Method, ModuleRule

if TYPE_CHECKING:
    import regex  # type: ignore[import-untyped, unused-ignore]

PATTERN_TIMEOUT_SECONDS = 0.05
MAX_PATTERNS = 1_000
_WEIGHT = re.compile(r"(u?int|float)(\d)_?weight|(int|float)(\d)_?(?:wo|dq|weight)", re.IGNORECASE)
_ACTIVATION = re.compile(r"dynamic|static", re.IGNORECASE)


class TorchAoMethod(Method):
    """Config of torchao."""

    names: ClassVar[tuple[str, ...]] = ("torchao",)

    def declare(self, raw: Mapping[str, Any], *, file: str, key: str) -> Declaration:
        """See Method.declare."""
        config = ConfigObject(raw, file=file, key=key)
        kind = raw.get("quant_type")
        default: Scheme | None = None
        rules: tuple[ModuleRule, ...] = ()
        if isinstance(kind, str):
            default = scheme_of(kind, config.child("quant_type_kwargs"))
        else:
            tree = config.child("quant_type").get("default")
            default, rules = _tree(tree, config.path("quant_type.default"))
        embeddings = config.boolean("include_input_output_embeddings")
        return Declaration(
            method="torchao",
            file=file,
            key=key,
            raw=raw,
            default=default,
            rules=rules,
            skips=config.skips("modules_to_not_convert"),
            implicit_plain=() if embeddings else ("lm_head", "embed_tokens"),
            ill_typed=tuple(config.ill_typed),
        )


def scheme_of(label: str, data: Mapping[str, Any]) -> Scheme:
    """The scheme of one configuration class or old label. What its name does not say is None."""
    found = _WEIGHT.search(label)
    number, bits = (found[1] or found[3], int(found[2] or found[4])) if found else (None, None)
    size = data.get("group_size")
    per_row = bits == 8 and not is_count(size) and "tensor" not in _granularity(data).lower()
    active = _ACTIVATION.search(label)
    return Scheme(
        method="torchao",
        format=label,
        type=None if number is None else "float" if number.lower() == "float" else "int",
        num_bits=bits,
        strategy="group" if is_count(size) else "channel" if per_row else None,
        group_size=size if is_count(size) else None,
        activations=active[0].lower() if active else None,
    )


def _granularity(data: Mapping[str, Any]) -> str:
    value = data.get("granularity")
    if isinstance(value, dict):
        value = value.get("_type")
    return value if isinstance(value, str) else ""


def _tree(tree: object, key: str) -> tuple[Scheme | None, tuple[ModuleRule, ...]]:
    """One serialised configuration, or a table of them."""
    label, data = _node(tree)
    if "fqn" not in label.lower():
        return _leaf(tree), ()
    tables = (value for name, value in data.items() if name.endswith("fqn_to_config") and isinstance(value, dict))
    table: Mapping[str, Any] = next(tables, {})
    rules = [
        ModuleRule(key=f"{key}.{name}", matches=_matcher(name), scheme=_leaf(entry))
        for name, entry in list(table.items())[:MAX_PATTERNS]
        if name != "_default"
    ]
    rules.sort(key=lambda rule: rule.key.startswith(f"{key}.re:"))  # exact names win over patterns
    return _leaf(table.get("_default")), tuple(rules)


def _node(tree: object) -> tuple[str, Mapping[str, Any]]:
    """Class name and fields of one serialised object; ('', {}) if it is none."""
    if not isinstance(tree, dict) or not isinstance(tree.get("_type"), str):
        return "", {}
    data = tree.get("_data")
    return tree["_type"], data if isinstance(data, dict) else {}


def _leaf(tree: object) -> Scheme | None:
    label, data = _node(tree)
    return scheme_of(label, data) if label else None


def _matcher(name: str) -> Callable[[str], bool]:
    if not name.startswith("re:"):
        return lambda module: module == name or f"{module}.weight" == name
    import regex  # most configurations hold no pattern, and importing it takes longer than reading them

    try:
        pattern = regex.compile(name[3:])
    except regex.error:
        return lambda module: False
    return lambda module: _full_match(pattern, module)


def _full_match(pattern: regex.Pattern[str], module: str) -> bool:
    try:
        return pattern.fullmatch(module, timeout=PATTERN_TIMEOUT_SECONDS) is not None
    except TimeoutError:
        return False

"""Where in a quantisation config a fact about one module stands: the dotted key that a reader has to look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from degarble.methods.interface import Declaration
from degarble.methods.modelopt import ALGORITHMS

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "num_bits": (
        "bits",
        "num_bits",
        "w_bit",
        "wbits",
        "load_in_4bit",
        "load_in_8bit",
        "mode",
        "quant_algo",
        "quant_type",
    ),
    "group_size": ("group_size", "q_group_size", "weight_block_size", "block_structure", "strategy", "quant_algo"),
    "block_grid": ("weight_block_size", "block_structure", "block_shape", "group_size", "strategy", "quant_algo"),
    "layout": ("quant_method",),
    "label": ("format", "checkpoint_format", "version"),
    "act_order": ("desc_act", "actorder"),
    "dtype": ("type", "fmt", "bnb_4bit_quant_type", "mode", "quant_algo", "quant_type", "format"),
    "zero_point": ("zero_point", "sym", "symmetric", "has_zero_point"),
}
"""Fact -> the keys under which methods write it, the most telling first."""

NOT_WEIGHTS = frozenset(
    {"input_activations", "output_activations", "kv_cache_scheme", "meta", "producer", "sparsity_config"}
)
"""Objects that repeat the same keys about something else."""

FLAGS = frozenset({"load_in_4bit", "load_in_8bit"})
"""Of these two only the one that is set says something."""

BY_ALGORITHM = frozenset({"num_bits", "dtype", "layout"})
"""What ModelOpt's algorithm name says, whatever stands beside it."""

MAX_DEPTH = 5


def declared_key(declaration: Declaration, module: str, about: str) -> str:
    """The dotted key of the fact `about`, in the rule that governs `module` or in the whole config."""
    if declaration.method == "modelopt" and about in BY_ALGORITHM and _names_algorithm(declaration):
        return f"{declaration.key}.quant_algo".lstrip(".")
    rule = next((rule for rule in declaration.rules if rule.matches(module)), None)
    for base in (rule.key, declaration.key) if rule is not None else (declaration.key,):
        inside = _object_at(declaration, base)
        for spelling in SPELLINGS.get(about, ()):
            path = next(_paths_to(spelling, inside, ()), None)
            if path is not None:
                return ".".join((*((base,) if base else ()), *path))
    return (rule.key if rule is not None else "") or declaration.key


def _names_algorithm(declaration: Declaration) -> bool:
    name = declaration.raw.get("quant_algo")
    return isinstance(name, str) and name.upper() in ALGORITHMS


def _object_at(declaration: Declaration, key: str) -> Any:
    """The part of the config that a dotted key names; names in it may hold dots themselves."""
    rest = key.removeprefix(declaration.key).removeprefix(".") if key != declaration.key else ""
    value: Any = declaration.raw
    while rest and isinstance(value, dict):
        name = next((k for k in value if isinstance(k, str) and (rest == k or rest.startswith(k + "."))), None)
        if name is None:
            return None
        value, rest = value[name], rest[len(name) + 1 :]
    return value


def _paths_to(name: str, value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths to every key called `name` that says something, outermost first."""
    if not isinstance(value, dict) or len(path) >= MAX_DEPTH:
        return
    written = value.get(name)
    if written is not None and (written is not False or name not in FLAGS):
        yield (*path, name)
    for key, inner in value.items():
        if isinstance(inner, dict) and key not in NOT_WEIGHTS:
            yield from _paths_to(name, inner, (*path, str(key)))

"""Families as their data files describe them: the parts they are built of, and the config keys those read.

A part (`parts.toml`) is a block that several families share: attention, an MLP, experts. A family uses parts
and fills their `<placeholders>`. A model type is a family with other defaults. Adding a family is one file in
`data/architectures/`; nothing lists them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import msgspec

from degarble.architectures.config_key import ConfigKey, parse_key
from degarble.architectures.expression import Expression, compile_expression

_PLACEHOLDER = re.compile(r"<(\w+)>")
_NO_FAMILY = frozenset({"parts.toml", "prefixes.toml", "gguf.toml", "wrappers.toml"})
_LAYER_ROOT = "model.layers.{layer}."


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a part: a parameter before any config is known."""

    name: str
    dims: tuple[Expression, ...]
    kind: str
    when: Expression
    """True: needed. None: allowed, but not needed. False: not part of this model."""
    needed: bool
    group: str | None
    variant: str | None
    experts: Expression | None


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A part as one family uses it."""

    layers: Expression | None
    """Over `layer`; None where the parameters carry no layer number."""
    is_mtp: bool
    """Lives in multi-token prediction layers only."""
    count: Expression
    """How many layers the numbers run over."""
    follows_mtp: bool
    """Whether MTP layers, numbered behind the decoder's, repeat the block."""
    parameters: tuple[Parameter, ...]
    fused: tuple[tuple[str, ...], ...]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one model type that holds before its config is read."""

    name: str
    model_type: str
    norm_convention: str
    keys: tuple[ConfigKey, ...]
    nested: Mapping[str, int]
    """Sizes that the `text_config` of a multimodal model may leave out: its class has them as defaults."""
    rope: Mapping[str, float]
    blocks: tuple[Block, ...]


def find_family(model_type: str) -> Family | None:
    """The family of a `model_type`; None if no data file names it."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", model_type):
        return None
    return _family(model_type)


def model_type_of_class(class_name: str) -> str | None:
    """The model type behind an entry of `architectures`, for configs whose `model_type` is unknown."""
    for _, text in _family_files():
        if class_name and class_name in text:
            for model_type, row in tomllib.loads(text)["model_types"].items():
                if class_name in row.get("classes", ()):
                    return str(model_type)
    return None


def known_model_types() -> tuple[str, ...]:
    """Every model type of every data file."""
    return tuple(sorted(name for _, text in _family_files() for name in tomllib.loads(text)["model_types"]))


@cache
def _family(model_type: str) -> Family | None:
    mark = f"[model_types.{model_type}]"
    for name, text in _family_files():
        if mark in text:
            return _parse(name, model_type, tomllib.loads(text))
    return None


def _family_files() -> Iterator[tuple[str, str]]:
    """Name and text of each family's file. Parsing all of them would cost more than one check does."""
    for entry in sorted(_folder().iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml") and entry.name not in _NO_FAMILY:
            yield entry.name.removesuffix(".toml"), entry.read_text(encoding="utf-8")


def _folder() -> Traversable:
    return files("degarble.data") / "architectures"


@cache
def _parts() -> dict[str, Any]:
    return tomllib.loads((_folder() / "parts.toml").read_text(encoding="utf-8"))


def _parse(name: str, model_type: str, data: dict[str, Any]) -> Family:
    row = data["model_types"][model_type]
    keys: dict[str, ConfigKey] = {}
    for part in [_parts()[use["part"]] for use in data["use"]] + [data]:
        for key, key_row in part.get("keys", {}).items():
            keys[key] = parse_key(key, key_row)
    for key, default in {**data.get("defaults", {}), **row.get("defaults", {})}.items():
        null = keys[key].null or keys[key].default
        keys[key] = replace(keys[key], default=compile_expression(default), null=null)
    return Family(
        name=name,
        model_type=model_type,
        norm_convention=data.get("norm_convention", "w"),
        keys=tuple(keys.values()),
        nested={**data.get("nested", {}), **row.get("nested", {})},
        rope={"default_theta": 10_000.0, **data.get("rope", {}), **row.get("rope", {})},
        blocks=tuple(_block(use, data.get("layer_sets", {})) for use in data["use"]),
    )


def _block(use: Mapping[str, Any], layer_sets: Mapping[str, str]) -> Block:
    """Fill a part's placeholders with what the family gives, or with the part's own values."""
    part = _parts()[use["part"]]
    values = {**part.get("params", {}), **use}

    def fill(text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: str(values[match.group(1)]), text)

    root = str(use.get("root", part.get("root", _LAYER_ROOT)))
    prefix = fill(root + part.get("at", ""))
    layer_set = str(use.get("layers", part.get("layers", "all")))
    layered = "{layer}" in prefix
    return Block(
        layers=compile_expression(layer_sets.get(layer_set, "True")) if layered else None,
        is_mtp=layer_set == "mtp",
        count=compile_expression(use.get("count", "num_hidden_layers")),
        follows_mtp=root == _LAYER_ROOT,
        parameters=tuple(_parameter(row, prefix, fill, use.get("needed", True)) for row in part["tensors"]),
        fused=tuple(tuple(fill(module) for module in group) for group in part.get("fused", ())),
    )


def _parameter(row: Mapping[str, Any], prefix: str, fill: Callable[[str], str], needed: bool) -> Parameter:
    name = prefix + fill(row["name"])
    kind = row.get("kind") or ("bias" if name.endswith(".bias") else "linear")
    dims = fill(row.get("dims", ""))
    return Parameter(
        name=name,
        dims=tuple(compile_expression(axis.strip()) for axis in dims.split(",") if axis.strip()),
        kind=kind,
        when=compile_expression(fill(row.get("when", "True"))),
        needed=needed and row.get("needed", True),
        group=row.get("group"),
        variant=row.get("variant"),
        experts=compile_expression(fill("<experts>")) if "{expert}" in name else None,
    )

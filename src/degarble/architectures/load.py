"""Choose the family of a config and draw its parameter list."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from degarble.architectures.family import Family, find_family, model_type_of_class
from degarble.architectures.interface import MAX_LAYERS, Architecture, ArchitectureError, Container
from degarble.architectures.parameters import build_templates, fused_groups

_MAX_DEPTH = 4
"""Qwen omni nests thinker_config.text_config; nothing real nests deeper."""


def load_architecture(config: Mapping[str, object], *, container: Container = Container.HF) -> Architecture | None:
    """The architecture behind a `config.json`, or behind `gguf_config()` with `container=Container.GGUF`.

    None for a family without data. Raises ArchitectureError if the family is known and a key cannot be used.
    """
    found = _text_model(config, tied=None, wrapper="", depth=0)
    if found is None:
        return None
    family, text_config, tied = found
    resolved, per_layer = _resolve(family, _completed(family, text_config, config, tied), container)
    layers = _integer(resolved, "num_hidden_layers")
    has_mtp = any(block.is_mtp for block in family.blocks)
    num_mtp = _integer(resolved, "num_nextn_predict_layers") if has_mtp else 0
    mtp_layers = tuple(range(layers, layers + num_mtp))
    environment = {**resolved, "gguf": container is Container.GGUF}
    return Architecture(
        family=family.name,
        model_type=family.model_type,
        config=MappingProxyType({**text_config, **resolved}),
        templates=build_templates(family, environment, per_layer, mtp_layers),
        num_layers=layers,
        mtp_layers=mtp_layers,
        norm_convention="w" if container is Container.GGUF else family.norm_convention,
        fused_groups=fused_groups(family),
        tied=bool(resolved["tie_word_embeddings"]),
        rope=MappingProxyType(dict(family.rope)),
    )


def text_config_of(config: Mapping[str, object]) -> Mapping[str, object]:
    """The innermost config that describes the language model; the config itself if nothing is nested."""
    for _ in range(_MAX_DEPTH):
        inner = _nested(config)
        if inner is None:
            break
        config = inner
    return config


def _nested(config: Mapping[str, object]) -> Mapping[str, object] | None:
    for key in _wrappers()["text_keys"]:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            return inner
    return None


def _text_model(
    config: Mapping[str, object], tied: object, wrapper: str, depth: int
) -> tuple[Family, Mapping[str, object], object] | None:
    """Family and config of the language model, and the tie flag of the nearest level that gives one."""
    own_tie = config.get("tie_word_embeddings")
    tied = tied if own_tie is None else own_tie
    inner = _nested(config) if depth < _MAX_DEPTH else None
    if inner is not None:
        found = _text_model(inner, tied, str(config.get("model_type") or wrapper), depth + 1)
        if found is not None:
            return found
    family = _family_of(config, wrapper)
    return None if family is None else (family, config, tied)


def _family_of(config: Mapping[str, object], wrapper: str) -> Family | None:
    model_type = config.get("model_type")
    if model_type is None:
        model_type = _wrappers()["text_models"].get(wrapper)
    if isinstance(model_type, str):
        family = find_family(model_type)
        if family is not None:
            return family
    classes = config.get("architectures")
    if isinstance(classes, (list, tuple)) and classes and isinstance(classes[0], str):
        by_class = model_type_of_class(classes[0])
        return None if by_class is None else find_family(by_class)
    return None


def _completed(
    family: Family, text_config: Mapping[str, object], config: Mapping[str, object], tied: object
) -> dict[str, object]:
    """The text config with the effective tie flag, and with the sizes that a nested config may leave out."""
    nested: Mapping[str, object] = family.nested if text_config is not config else {}
    completed = {**nested, **text_config}
    completed.pop("tie_word_embeddings", None)
    return completed if tied is None else {**completed, "tie_word_embeddings": tied}


def _resolve(
    family: Family, config: Mapping[str, object], container: Container
) -> tuple[dict[str, object], dict[str, tuple[int, ...]]]:
    """Plain values for all keys; for sizes given per layer the largest one, and the list beside it."""
    resolved: dict[str, object] = {}
    per_layer: dict[str, tuple[int, ...]] = {}
    for key in family.keys:
        value: Any = key.read(config, resolved, container)
        if key.per_layer and isinstance(value, tuple):
            if max(value, default=0) < 1:
                raise ArchitectureError(key.name, "at least one layer with a size above 0", str(value[:8]))
            per_layer[key.name] = value
            value = max(value)
        resolved[key.name] = value
    return resolved, per_layer


def _integer(resolved: Mapping[str, object], key: str) -> int:
    value = resolved[key]
    assert isinstance(value, int) and value <= MAX_LAYERS
    return value


@cache
def _wrappers() -> dict[str, Any]:
    text = (files("degarble.data") / "architectures" / "wrappers.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)

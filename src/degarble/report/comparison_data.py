"""The numbers of a comparison, looked up with care: a report read back from a file may hold anything under that key."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

MAX_LAYERS, MAX_KINDS, MAX_ROWS = 512, 40, 60_000
_IN_LAYER = re.compile(r"^.*?\.\d{1,6}\.(.+)$")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One square of a map: of all experts the worst."""

    layer: int
    kind: str
    """Name in its layer, an expert's number as `*`."""
    value: float
    module: str


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One position of a text."""

    text: str | None
    sequence: int
    position: int
    kl: float | None
    """None where it is not finite."""
    agrees: bool


def rows_of(comparison: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The records in a list; nothing where there is no list."""
    found = comparison.get(key)
    if not isinstance(found, (list, tuple)):
        return []
    return [row for row in found[:MAX_ROWS] if isinstance(row, Mapping)]


def finite(value: object) -> float | None:
    """A number one can draw."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def layer_of(row: Mapping[str, Any]) -> int | None:
    """A layer's number, where it can be one."""
    value = row.get("layer")
    return value if type(value) is int and 0 <= value < MAX_LAYERS else None


def kind_of(module: str) -> str:
    """`self_attn.q_proj` of `model.layers.3.self_attn.q_proj`; experts share a kind."""
    found = _IN_LAYER.match(module)
    name = module if found is None else found[1]
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def cells(modules: Sequence[Mapping[str, Any]], measure: str) -> list[Cell]:
    """By layer and kind the worst value, kinds in the order in which they come."""
    worst: dict[tuple[str, int], Cell] = {}
    kinds: dict[str, None] = {}
    for row in modules:
        layer, value, module = layer_of(row), finite(row.get(measure)), row.get("module")
        if layer is None or value is None or value < 0 or not isinstance(module, str):
            continue
        kind = kind_of(module)
        if kind not in kinds and len(kinds) == MAX_KINDS:
            continue
        kinds[kind] = None
        old = worst.get((kind, layer))
        if old is None or value > old.value:
            worst[kind, layer] = Cell(layer=layer, kind=kind, value=value, module=module)
    order = list(kinds)
    return sorted(worst.values(), key=lambda cell: (order.index(cell.kind), cell.layer))


def curve(layers: Sequence[Mapping[str, Any]], measure: str) -> list[tuple[int, float]]:
    """(layer, value), for values that a logarithmic axis has a place for."""
    found = ((layer_of(row), finite(row.get(measure))) for row in layers)
    return sorted((layer, value) for layer, value in found if layer is not None and value is not None and value > 0)


def tokens(comparison: Mapping[str, Any]) -> Iterator[Token]:
    """Every position whose place is told."""
    for row in rows_of(comparison, "by_token"):
        sequence, position, text = row.get("sequence"), row.get("position"), row.get("text")
        if type(sequence) is not int or type(position) is not int:
            continue
        yield Token(
            text=text if isinstance(text, str) else None,
            sequence=sequence,
            position=position,
            kl=finite(row.get("kl")),
            agrees=row.get("agrees") is True,
        )

"""Where a tensor is that only its name tells of: in an index, or in a shard that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable

from degarble.architectures.canonical import template_of
from degarble.finding import Location
from degarble.formats.split import split_name


def tensor_place(name: str, file: str, *, key: str | None = None) -> Location:
    """A tensor's place with module, layer and expert read off its name."""
    module, _ = split_name(name, {})
    layer, expert = _numbers(module)
    return Location(file=file, key=key, tensor=name, module=module, layer=layer, expert=expert)


def lost_places(file: str, names: Iterable[str]) -> tuple[Location, ...]:
    """The file, then every module it should hold, so that findings about them join.

    Nobody knows what an unlisted file held: then the second place is the whole target.
    """
    modules: dict[str, Location] = {}
    for name in names:
        module, _ = split_name(name, {})
        if module not in modules:
            layer, expert = _numbers(module)
            modules[module] = Location(file=file, module=module, layer=layer, expert=expert)
    return (Location(file=file), *(modules.values() or (Location(),)))


def _numbers(module: str) -> tuple[int | None, int | None]:
    """Layer and expert; the dot in front lets a bare decoder's `layers.0` be seen, and `blk.0` reads likewise."""
    _, layer, expert = template_of("." + module.replace("blk.", "layers.", 1) if module[:4] == "blk." else "." + module)
    return layer, expert


def layer_span(places: Iterable[Location]) -> str:
    """`layers 10 to 14` for a message; '' where no layer is named."""
    layers = sorted({place.layer for place in places if place.layer is not None})
    if not layers:
        return ""
    return f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"

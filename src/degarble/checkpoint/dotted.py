"""Dotted keys of reports, looked up in JSON values: the names in a path may hold dots themselves."""

from __future__ import annotations

from typing import Any


def holder_of(value: Any, key: str) -> tuple[Any, Any]:
    """The object or list in which the last part of a dotted key stands or would stand, and that part: a name or a place.

    `weight_map.model.norm.weight` leads into `weight_map` and leaves `model.norm.weight`; `decoder.decoders.2` leads
    into the list and leaves 2. Raises KeyError where the way there does not exist.
    """
    rest = key
    while True:
        if isinstance(value, list):
            step, _, rest = rest.partition(".")
            if not (step.isascii() and step.isdecimal() and len(step) < 10 and int(step) < len(value)):
                raise KeyError(key)
            if not rest:
                return value, int(step)
            value = value[int(step)]
            continue
        if not isinstance(value, dict):
            raise KeyError(key)
        if rest in value:
            return value, rest
        name = max((name for name in value if rest.startswith(f"{name}.")), key=len, default=None)
        if name is None or not isinstance(value[name], (dict, list)):
            if "." in rest:
                raise KeyError(key)
            return value, rest
        value, rest = value[name], rest[len(name) + 1 :]


def value_at(value: Any, key: str) -> Any:
    """What stands under a dotted key; None where nothing does. The empty key is the value itself."""
    if not key:
        return value
    try:
        holder, name = holder_of(value, key)
        return holder[name]
    except KeyError:
        return None

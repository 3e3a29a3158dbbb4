"""Dotted keys of reports, looked up in JSON values: the names in a path may hold dots themselves."""

from __future__ import annotations

from typing import Any


def holder_of(value: Any, key: str) -> tuple[dict[str, Any], str]:
    """The object in which the last part of a dotted key stands or would stand, and that part.

    `weight_map.model.norm.weight` leads into `weight_map` and leaves `model.norm.weight`. Raises KeyError where the
    way there does not exist.
    """
    rest = key
    while isinstance(value, dict):
        if rest in value:
            return value, rest
        step = max((name for name in value if rest.startswith(f"{name}.")), key=len, default=None)
        if step is None or not isinstance(value[step], dict):
            if "." in rest:
                break
            return value, rest
        value, rest = value[step], rest[len(step) + 1 :]
    raise KeyError(key)


def value_at(value: Any, key: str) -> Any:
    """What stands under a dotted key; None where nothing does. The empty key is the value itself."""
    if not key:
        return value
    try:
        holder, name = holder_of(value, key)
    except KeyError:
        return None
    return holder.get(name)

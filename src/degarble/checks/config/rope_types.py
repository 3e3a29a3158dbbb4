"""What each kind of rotary scaling needs to be complete, and how one object of a config keeps to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

NEEDS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "deepseek_yarn": ("factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "su": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "mrope": ("mrope_section",),
    "proportional": (),
}
"""rope_type -> keys without which the frequencies cannot be computed (transformers modeling_rope_utils.py)."""

SYNONYMS = ({"su", "longrope"}, {"yarn", "deepseek_yarn"}, {"mrope", "default"})
LISTS = ("short_factor", "long_factor", "mrope_section")
ELSEWHERE = ("original_max_position_embeddings",)
"""Keys that may stand beside the object instead of in it (Phi-3)."""


class RopeFault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong with a rotary object."""

    key: str
    message: str
    is_unknown: bool = False


def rope_type(settings: Mapping[str, Any]) -> str | None:
    """The declared type; None where it is ill-typed or two spellings contradict each other."""
    new, old = settings.get("rope_type"), settings.get("type")
    if new is None and old is None:
        return "default"
    if new is not None and old is not None and new != old:
        return _joined(new, old)
    kind = new if new is not None else old
    return kind if isinstance(kind, str) else None


def _joined(new: object, old: object) -> str | None:
    if not isinstance(new, str) or not isinstance(old, str):
        return None
    for pair in SYNONYMS:
        if new in pair and old in pair:
            return "mrope" if "mrope" in pair else str(new)
    return None


def objects(settings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(dotted suffix, object): Gemma 3 under transformers 5 has one for each type of layer."""
    inner = {key: value for key, value in settings.items() if isinstance(value, dict)}
    if inner and len(inner) == len(settings):
        yield from ((f".{key}", value) for key, value in inner.items())
    else:
        yield "", settings


def faults(settings: Mapping[str, Any], beside: Mapping[str, Any], rotary_half: int | None) -> Iterator[RopeFault]:
    """What an object lacks for its own type. `rotary_half` is the number of frequencies, where known."""
    kind = rope_type(settings)
    if kind is None:
        yield RopeFault(
            key="rope_type", message="it is no name, or its two spellings `type` and `rope_type` contradict"
        )
        return
    if kind not in NEEDS:
        yield RopeFault(key="rope_type", message=f"nobody knows the type {kind[:40]!r}", is_unknown=True)
        return
    for key in NEEDS[kind]:
        value = settings.get(key)
        if value is None and key in ELSEWHERE:
            value = beside.get(key)
        if value is None:
            yield RopeFault(key=key, message=f"{kind} needs {key}, which is not there")
        elif key in LISTS:
            yield from _list_faults(kind, key, value, rotary_half)
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            yield RopeFault(key=key, message=f"{key} must be a number above 0, and is {str(value)[:40]!r}")


def _list_faults(kind: str, key: str, value: object, rotary_half: int | None) -> Iterator[RopeFault]:
    is_list = isinstance(value, list) and all(
        isinstance(item, (int, float)) and not isinstance(item, bool) for item in value
    )
    if not isinstance(value, list) or not is_list or not value:
        yield RopeFault(key=key, message=f"{key} must be a list of numbers")
        return
    size = sum(value) if key == "mrope_section" else len(value)
    if rotary_half is not None and size != rotary_half:
        what = "adds up to" if key == "mrope_section" else "has"
        yield RopeFault(key=key, message=f"{key} {what} {size}, and {kind} rotates {rotary_half} pairs of a head")

"""The steps of a stored pipeline: `normalizer`, `pre_tokenizer` and `decoder` are one step, or nested sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

LISTS = ("normalizers", "pretokenizers", "decoders")
"""What the list of a `Sequence` is called in each part."""
MAX_DEPTH = 20
MAX_STAGES = 1000


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One step that is no sequence."""

    key: str
    """Dotted key as it stands in the file: `decoder.decoders.3`."""
    kind: str
    settings: Mapping[str, Any]


def stages(part: object, key: str) -> list[Stage]:
    """The steps of one part in their order; what is no object with a type is left out."""
    return list(_walk(part, key, MAX_DEPTH))[:MAX_STAGES]


def _walk(part: object, key: str, depth: int) -> Iterator[Stage]:
    if not isinstance(part, Mapping) or depth == 0:
        return
    kind = part.get("type")
    if kind != "Sequence":
        if isinstance(kind, str):
            yield Stage(key=key, kind=kind, settings=part)
        return
    for name in LISTS:
        inner = part.get(name)
        for at, step in enumerate(inner if isinstance(inner, list) else ()):
            yield from _walk(step, f"{key}.{name}.{at}", depth - 1)


def sequence_of(part: str, steps: list[Stage]) -> dict[str, Any] | None:
    """The stored form of a chain of steps; None where there is none."""
    if not steps:
        return None
    name = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}[part]
    return {"type": "Sequence", name: [dict(step.settings) for step in steps]}

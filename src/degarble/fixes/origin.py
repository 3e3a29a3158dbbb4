"""Where what is lost can be had again: the repository and revision a checkpoint came from, as far as it says so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from degarble.checkpoint.index import is_plain_name
from degarble.evidence.store import Evidence

SNAPSHOT = re.compile(r"models--(?P<org>[\w.-]+?)--(?P<name>[\w.-]+)\Z")
HUB_NAME = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}\Z", re.ASCII)
MAX_NAMED = 20


def advice(evidence: Evidence, tensors: Iterable[str], files: Iterable[str] = ()) -> tuple[str, ...]:
    """`tensor X, in FILE of ORIGIN` for each tensor, `FILE of ORIGIN` for each file; the first twenty."""
    index = evidence.find("index")
    place = origin(evidence)
    wanted = list(dict.fromkeys(files))
    for name in dict.fromkeys(tensors):
        shard = index.weight_map.get(name) if index is not None else None
        wanted.append(f"tensor {name}" + (f", in {shard}" if shard and is_plain_name(shard) else ""))
    shown = [f"{item} of {place}" for item in wanted[:MAX_NAMED]]
    more = len(wanted) - len(shown)
    return (*shown, f"and {more} more") if more > 0 else tuple(shown)


def origin(evidence: Evidence) -> str:
    """`hf:org/name@revision` where a hub cache or the config tells, words otherwise."""
    source = evidence.get("source")
    cached = _cached(getattr(_base(source), "root", None))
    if cached is not None:
        return cached
    if source.kind == "hub":
        return str(source.path)
    config = evidence.find("model_config")
    name = config.values.get("_name_or_path") if config is not None else None
    if isinstance(name, str) and HUB_NAME.match(name):
        return f"hf:{name} (by the config's `_name_or_path`, which may be the unquantised source)"
    return "the repository this checkpoint came from"


def _base(source: Any) -> Any:
    """The folder under any number of edited views."""
    while hasattr(source, "base"):
        source = source.base
    return source


def _cached(root: Path | None) -> str | None:
    """From `models--org--name/snapshots/revision`."""
    if root is None or root.parent.name != "snapshots":
        return None
    found = SNAPSHOT.match(root.parent.parent.name)
    return f"hf:{found['org']}/{found['name']}@{root.name}" if found else None

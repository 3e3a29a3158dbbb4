"""Damage for hypothesis to choose from: bytes of a file, and nodes of a JSON tree."""

from __future__ import annotations

import copy
import json
import struct
from typing import Any

from hypothesis import strategies as st

from degarble.checkpoint.interface import Source
from degarble.checkpoint.rope import RopeSource, literal

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**64, -(2**63), 10**30, 0.0, -1.5, 1e308),
    *(
        "",
        "0",
        "x",
        "model",
        "BF16",
        "../../etc/passwd",
        "/dev/zero",
        "\0",
        "é\u2028",
        "a" * 5000,
        "*",
        "re:(a+)+$",
        "re:[",
    ),
    *([], [[]], [None], [-1], [0], [2**60, 2**60], [1, "x"], list(range(300))),
    *({}, {"": None}, {"x": {"y": []}}),
)
"""Values of every JSON type that a careless reader stumbles over."""

hostile_values = st.sampled_from(HOSTILE).map(copy.deepcopy)


def nodes(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every node below the root."""
    found: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack:
        item = stack.pop()
        pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        for key, value in list(pairs):
            found.append((item, key))
            stack.append(value)
    return found


@st.composite
def damaged_tree(draw: st.DrawFn, tree: Any) -> Any:
    """A copy with one to four nodes replaced, removed, renamed, doubled or exchanged."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 4))):
        places = nodes(tree)
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        act = draw(st.sampled_from(("replace", "replace", "nudge", "remove", "rename", "copy")))
        if (isinstance(holder, list) and key >= len(holder)) or (isinstance(holder, dict) and key not in holder):
            continue
        if act == "remove":
            del holder[key]
        elif act == "rename" and isinstance(holder, dict):
            holder[draw(st.sampled_from(("", "__metadata__", "x", f"{key}.", f"{key}_scale", key.upper())))] = (
                holder.pop(key)
            )
        elif act == "nudge" and isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] += draw(st.sampled_from((-64, -8, -1, 1, 8, 64, 2**32)))
        elif act == "copy":
            other, place = draw(st.sampled_from(places))
            if (isinstance(other, list) and place < len(other)) or (isinstance(other, dict) and place in other):
                holder[key] = copy.deepcopy(other[place])
        else:
            holder[key] = draw(hostile_values)
    return tree


@st.composite
def damaged_bytes(draw: st.DrawFn, data: bytes, *, first: int | None = None) -> bytes:
    """One to six cuts, insertions, overwrites or repetitions, mostly within the first bytes."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, min(len(found), first or len(found))))
        act = draw(st.sampled_from(("flip", "set", "number", "cut", "insert", "end")))
        if act == "flip" and at < len(found):
            found[at] ^= 1 << draw(st.integers(0, 7))
        elif act == "set":
            found[at : at + 4] = draw(
                st.sampled_from((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"}}}}", b'""""', b"\\\\\\\\"))
            )
        elif act == "number":
            found[at : at + 8] = struct.pack(
                "<Q", draw(st.sampled_from((0, 1, 9, 255, 2**20, 2**31, 2**40, 2**63, 2**64 - 1)))
            )
        elif act == "cut":
            del found[at : at + draw(st.integers(1, 64))]
        elif act == "insert":
            found[at:at] = draw(st.binary(min_size=1, max_size=16))
        elif act == "end":
            del found[at:]
    return bytes(found)


def split_header(data: bytes) -> tuple[dict[str, Any], bytes]:
    """JSON and tensor data of a safetensors file."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_files(base: Source, changed: dict[str, bytes]) -> RopeSource:
    """The checkpoint with some files replaced."""
    from degarble.checkpoint.workspace import Workspace

    source = Workspace(base).source()
    return RopeSource(base, {**source.ropes, **{name: (literal(data),) for name, data in changed.items()}})

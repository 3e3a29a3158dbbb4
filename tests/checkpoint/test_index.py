"""The shard index: names in it are claims, never paths."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.checkpoint.index import is_plain_name, read_index
from degarble.checkpoint.json_file import JsonFile
from degarble.errors import MalformedFile


def index(value: Any) -> JsonFile:
    """An index file with this value."""
    return JsonFile(name="model.safetensors.index.json", value=value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/x",
        "../x",
        "a/../x",
        "a//x",
        "./x",
        "C:\\x",
        "a\\b",
        "c:x",
        "a\0b",
        "a\nb",
        "x" * 1025,
        "..",
        "file://x",
        "a/",
    ],
)
def test_names_that_lead_out(name: str) -> None:
    """Refused, and kept apart in the index."""
    assert not is_plain_name(name)
    found = read_index(index({"weight_map": {"a": name, "b": "m.safetensors"}}))
    assert dict(found.unsafe) == {"a": name} and found.shards == ("m.safetensors",)


def test_plain_names() -> None:
    """A name in a sub-folder stays inside."""
    assert all(map(is_plain_name, ("m.safetensors", "sub/m.safetensors", "a b", "ü", "..x", "-")))


@pytest.mark.parametrize(
    "value",
    [None, [], 3, {}, {"weight_map": None}, {"weight_map": []}, {"weight_map": {"a": 1}}, {"weight_map": {"a": None}}],
)
def test_no_index_at_all(value: Any) -> None:
    """MalformedFile with the key."""
    with pytest.raises(MalformedFile):
        read_index(index(value))


@pytest.mark.parametrize("total", [None, "7", True, 1.5, [], -1, 10**400])
def test_total_size_of_any_type(total: Any) -> None:
    """Only an integer is believed."""
    found = read_index(index({"metadata": {"total_size": total}, "weight_map": {}}))
    assert found.total_size == (total if type(total) is int else None)
    assert read_index(index({"metadata": total, "weight_map": {}})).total_size is None

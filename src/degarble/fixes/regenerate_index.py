"""The shard index, written anew from the headers of the files."""

from __future__ import annotations

from typing import Any

from degarble.checkpoint.index import MODEL_INDEX, is_plain_name
from degarble.evidence.weights import Shard
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job


@repair("regenerate-index")
def regenerate_index(job: Job) -> None:
    """Write the `weight_map` that the headers of the weight files give.

    ## What it changes
    `model.safetensors.index.json` alone: every stored tensor is listed in the file that holds it, and the total size is
    counted. Other metadata stays.

    ## Why there is one answer
    The headers are what loaders read in the end; an index can only repeat them.

    ## What it cannot do
    Entries for tensors that no file holds stay as they are: striking them would hide the loss. Where two files hold a
    tensor, the index keeps its choice, and without one nothing is written.
    """
    shards: dict[str, Shard] = job.need("shards")
    if any(name.endswith(".gguf") for name in shards):
        raise CannotRepair("GGUF files have no index")
    name = next((place.file for place in job.places if place.file and place.file.endswith(".index.json")), MODEL_INDEX)
    old = _old(job, name)
    listed = old.get("weight_map")
    mapping = _mapping(shards, listed if isinstance(listed, dict) else {})
    size = sum(info.nbytes for shard in shards.values() for info in shard.tensors.values())
    metadata = old["metadata"] if isinstance(old.get("metadata"), dict) else {}
    job.write_json(name, {**old, "metadata": {**metadata, "total_size": size}, "weight_map": mapping}, "regenerated")


def _old(job: Job, name: str) -> dict[str, Any]:
    """The old index as far as it can be read; error pages under its name are dropped."""
    try:
        value = job.json(name)
    except CannotRepair:
        return {}
    return dict(value) if isinstance(value, dict) else {}


def _mapping(shards: dict[str, Shard], listed: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for file, shard in sorted(shards.items()):
        for tensor in shard.tensors:
            if tensor not in found or listed.get(tensor) == file:
                found[tensor] = file
            elif listed.get(tensor) != found[tensor]:
                raise CannotRepair(f"{tensor} is in {found[tensor]} and in {file}: which one is meant is not told")
    lost = {
        tensor: file
        for tensor, file in listed.items()
        if tensor not in found and isinstance(file, str) and is_plain_name(file)
    }
    return dict(sorted({**found, **lost}.items()))

"""A tensor that two weight files hold."""

from __future__ import annotations

from degarble.checkpoint.index import ShardIndex
from degarble.checkpoint.interface import TensorInfo
from degarble.evidence.weights import Shard
from degarble.fixes.interface import repair
from degarble.fixes.job import Job
from degarble.fixes.reference import is_equal_tensor


@repair("remove-doubled-file")
def remove_doubled_file(job: Job) -> None:
    """Keep one copy of tensors that two files hold with the same bytes.

    ## What it changes
    The copy that the index does not name (without an index: the one in the later file) is taken out of its file. A file
    of which nothing is left is left out as a whole.

    ## Why there is one answer
    The copies are equal, byte for byte, so that it does not matter which one stays.

    ## What it cannot do
    Where the two differ, they are of two exports, and nothing in the folder says which is meant: keeping the one that
    the index names is a judgement, and without an index nothing is done.
    """
    shards: dict[str, Shard] = job.need("shards")
    index: ShardIndex | None = job.evidence.find("index")
    source = job.evidence.get("source")
    doomed: dict[str, list[TensorInfo]] = {}
    for name in dict.fromkeys(place.tensor for place in job.places if place.tensor):
        copies = [shard.tensors[name] for shard in shards.values() if name in shard.tensors]
        kept = _kept(name, copies, index)
        for copy in copies:
            if copy is kept:
                continue
            if not is_equal_tensor(source, kept, source, copy):
                if index is None or name not in index.weight_map:
                    raise job.cannot(f"{name} differs between {kept.file} and {copy.file}", [name])
                job.judge(f"{name} differs between two files: the one that the index names is kept")
            doomed.setdefault(copy.file, []).append(copy)
    for file, copies in doomed.items():
        if len(copies) == len(shards[file].tensors):
            job.delete_file(file, "holds only what another file holds")
            continue
        for copy in copies:
            job.drop_from_file(copy, "another file holds it")


def _kept(name: str, copies: list[TensorInfo], index: ShardIndex | None) -> TensorInfo:
    """The copy in the file that the index names, else in a file whose name says that it is the model's, else the first."""
    listed = index.weight_map.get(name) if index is not None else None
    named = [copy for copy in copies if copy.file == listed]
    usual = [copy for copy in copies if copy.file.startswith("model")]
    return (named or usual or copies)[0]

"""CKP101: a weight file is shorter than its own header says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checkpoint.index import ShardIndex
from degarble.checkpoint.interface import TensorInfo
from degarble.checks.container.tensor_places import lost_places, tensor_place
from degarble.errors import MalformedFile
from degarble.evidence.weights import Shard
from degarble.finding import Finding, Fix, Location
from degarble.registry import check

FETCH = Fix(id="fetch-file", safe=False)


@check("CKP101", symptom_of=("CKP105", "CKP106"))
def shard_truncated(shards: Mapping[str, Shard], index: ShardIndex | None = None) -> Iterator[Finding]:
    """A weight file ends before its last tensor does.

    ## What it looks for
    The size of every `.safetensors` and `.gguf` file against the end of the last tensor in its header: for safetensors
    8 + header length + last data offset, for GGUF data start + offset + bytes of (type, shape). The bytes that are
    missing are counted, and the tensors that lie past the end are named.

    ## Why output turns to garbage
    Loaders that map files into memory do not read the end when they open it. Pages past the end of the file come back
    as zeros or as whatever was there before, so the layers in the missing part compute with nothing. Because leftovers
    differ from launch to launch, one start is fine and the next prints soup.

    ## What you will see
    Token soup from the first token, sometimes only in a fraction of cold starts; or the last layers silently zero, and
    answers that lose the thread. Strict loaders refuse the file.

    ## How to tell it from its look-alikes
    A missing shard (CKP102) has no file at all. A region too short inside a complete GGUF is CKP106. A header that does
    not fit into the file is reported here too, since only its length is wrong.

    ## How to confirm
    Compare the size on disk with the size the hub shows for the file, or its sha256 with the hub's digest.

    ## How to repair it
    Fetch exactly the named files again. Nothing in the folder can give the bytes back, so there is no safe automatic
    repair without a reference.

    ## References
    osaurus-ai/vmlx-swift#217, ggml-org/llama.cpp#6885, janhq/jan#3521
    """
    for shard in shards.values():
        if shard.problem is not None and shard.problem.missing_bytes > 0:
            yield _headless(shard.problem, index)
            continue
        size = _size(shard)
        beyond = [info for info in shard.tensors.values() if info.start + info.nbytes > size]
        if beyond:
            beyond.sort(key=lambda info: info.start)
            yield _finding(shard.file, max(info.end for info in beyond) - size, beyond)


def _size(shard: Shard) -> int:
    if shard.header is not None:
        return shard.header.size
    return shard.gguf.size if shard.gguf is not None else 0


def _headless(problem: MalformedFile, index: ShardIndex | None) -> Finding:
    """The file ends inside its header, so only an index can say what it held."""
    file, missing = problem.file, problem.missing_bytes
    held = [name for name, shard in index.weight_map.items() if shard == file] if index is not None else []
    return Finding(
        location=Location(file=file),
        message=f"{file} ends inside its own header, at least {missing:,} bytes short: none of its tensors can be read",
        measured={"missing_bytes": missing},
        bound={"missing_bytes": 0},
        places=lost_places(file, held),
        fix=FETCH,
    )


def _finding(file: str, missing: int, beyond: list[TensorInfo]) -> Finding:
    places = tuple(tensor_place(info.name, file) for info in beyond)
    more = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
    return Finding(
        location=places[0],
        message=f"{file} is {missing:,} bytes short: {beyond[0].name}{more} past its end read as zeros or leftovers",
        measured={"missing_bytes": missing, "tensors_past_end": len(beyond)},
        bound={"missing_bytes": 0},
        places=places if len(places) > 1 else (),
        fix=FETCH,
    )

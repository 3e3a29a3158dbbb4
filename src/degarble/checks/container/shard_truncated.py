"""CKP101: a weight file is shorter than its own header says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.evidence.weights import Shard
from degarble.finding import Finding, Fix, Location
from degarble.registry import check


@check("CKP101")
def shard_truncated(shards: Mapping[str, Shard]) -> Iterator[Finding]:
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
            yield _finding(shard.file, shard.problem.missing_bytes, ["the header itself"], None)
            continue
        size = _size(shard)
        beyond = [info for info in shard.tensors.values() if info.end > size]
        if beyond:
            beyond.sort(key=lambda info: info.start)
            yield _finding(shard.file, max(i.end for i in beyond) - size, [i.name for i in beyond], beyond[0].name)


def _size(shard: Shard) -> int:
    if shard.header is not None:
        return shard.header.size
    return shard.gguf.size if shard.gguf is not None else 0


def _finding(file: str, missing: int, names: list[str], tensor: str | None) -> Finding:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Finding(
        location=Location(file=file, tensor=tensor),
        message=f"{file} is {missing:,} bytes short: {names[0]}{more} past its end would be read as zeros or leftovers",
        measured={"missing_bytes": missing, "tensors_past_end": len(names)},
        bound={"missing_bytes": 0},
        places=tuple(Location(file=file, tensor=name) for name in names) if tensor and len(names) > 1 else (),
        fix=Fix(id="fetch-file", safe=False),
    )

"""CKP102: a weight file that the checkpoint names is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checkpoint.index import ShardIndex
from degarble.checks.container.tensor_places import layer_span, lost_places, tensor_place
from degarble.evidence.weights import NUMBERED, Shard
from degarble.finding import MAX_ALSO, Finding, Fix, Location
from degarble.registry import check

FETCH = Fix(id="fetch-file", safe=False)


@check("CKP102", symptom_of=("CKP104",))
def shard_missing(index: ShardIndex, files: Mapping[str, int]) -> Iterator[Finding]:
    """A weight file that the index, the numbering or the GGUF split header promises is not in the checkpoint.

    ## What it looks for
    Every file named in `model.safetensors.index.json` against the files that are there. Without an index, the numbers
    in `model-00003-of-00015.safetensors` or `…-00002-of-00003.gguf`, and `split.count` in a GGUF header. A file name in
    the index that is absolute, holds `..` or otherwise leads out of the folder is reported here and never opened.

    ## Why output turns to garbage
    Some loaders walk over the files they find and never ask which ones should be there. The parameters of the absent
    file keep whatever their memory held: the server starts, captures its graphs, answers health checks, and computes
    with leftovers in a few layers.

    ## What you will see
    Fluent fragments that lead nowhere, or token soup, the same on every prompt; perplexity in the hundreds. Strict
    loaders stop with a missing file or missing parameters.

    ## How to tell it from its look-alikes
    A stale index beside renamed shards names absent files too, but every tensor is there in files that the index does
    not name: that is CKP104, and this finding is then its symptom. A file that is there and too short is CKP101.

    ## How to confirm
    List the folder beside the file list of the repository it came from; look for an interrupted download
    (`*.incomplete`) or a full disk.

    ## How to repair it
    Fetch exactly the named files and check their sha256. Nothing in the folder can give the tensors back, so the repair
    is not safe unattended.

    ## References
    sgl-project/sglang#32279
    """
    absent = [name for name in index.shards if name not in files]
    if absent:
        yield _absent(absent, index)
    for name, shard in index.unsafe.items():
        yield Finding(
            location=tensor_place(name, index.file, key=f"weight_map.{name}"),
            message=f"{index.file} looks for {name} in {shard[:200]!r}, which leads out of the folder: never opened",
            fold="unsafe name",
            fix=Fix(id="regenerate-index", safe=True),
        )


def _absent(absent: list[str], index: ShardIndex) -> Finding:
    gone = set(absent)
    held: dict[str, list[str]] = {name: [] for name in absent}
    for tensor, shard in index.weight_map.items():
        if shard in gone:
            held[shard].append(tensor)
    places = [place for name in absent for place in lost_places(name, held[name])]
    num_tensors = sum(map(len, held.values()))
    where = layer_span(places)
    files = f"{absent[0]} is" if len(absent) == 1 else f"{len(absent)} files ({absent[0]}, …) are"
    return Finding(
        location=Location(file=absent[0]),
        message=f"{files} named by {index.file} and not there: {num_tensors} tensors"
        f"{' of ' + where if where else ''} have no data",
        measured={"missing_files": len(absent), "missing_tensors": num_tensors},
        bound={"missing_files": 0},
        places=tuple(places),
        fix=FETCH,
    )


@check("CKP102", symptom_of=("CKP104",))
def shard_number_missing(
    files: Mapping[str, int], shards: Mapping[str, Shard], index: ShardIndex | None = None
) -> Iterator[Finding]:
    """Gaps in the numbering, where no index tells."""
    seen: dict[tuple[str, str, str], set[int]] = {}
    for name in files:
        match = NUMBERED.match(name)
        if match and "/" not in name and name in shards and (index is None or match["suffix"] == "gguf"):
            seen.setdefault((match["stem"], match["total"], match["suffix"]), set()).add(int(match["number"]))
    for (stem, total, suffix), numbers in seen.items():
        first = 0 if 0 in numbers else 1
        missing = int(total) - sum(first <= number < int(total) + first for number in numbers)
        if missing > 0:
            gaps = (number for number in range(first, int(total) + first) if number not in numbers)
            names = [f"{stem}-{next(gaps):0{len(total)}d}-of-{total}.{suffix}" for _ in range(min(missing, MAX_ALSO))]
            yield _gap(names, missing, f"the other files count {int(total)} parts")


@check("CKP102")
def split_part_missing(shards: Mapping[str, Shard]) -> Iterator[Finding]:
    """GGUF parts under names without a number: `split.count` still tells how many there were."""
    parts = [shard for shard in shards.values() if shard.gguf is not None and not NUMBERED.match(shard.file)]
    for shard in parts:
        count = shard.gguf.metadata.get("split.count") if shard.gguf else None
        if isinstance(count, int) and not isinstance(count, bool) and count > len(parts):
            yield Finding(
                location=Location(file=shard.file, key="split.count"),
                message=f"{shard.file} is one of {count} parts (split.count), and only {len(parts)} are there",
                measured={"parts": len(parts)},
                bound={"parts": count},
                places=(Location(file=shard.file, key="split.count"), Location()),
                fix=FETCH,
            )
            return


def _gap(names: list[str], missing: int, why: str) -> Finding:
    more = f" and {missing - 1} more" if missing > 1 else ""
    return Finding(
        location=Location(file=names[0]),
        message=f"{names[0]}{more} not there: {why}",
        measured={"missing_files": missing},
        bound={"missing_files": 0},
        places=(*(Location(file=name) for name in names), Location()),
        fix=FETCH,
    )

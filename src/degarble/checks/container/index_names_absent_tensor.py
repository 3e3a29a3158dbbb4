"""CKP103: the index points to a tensor that is not where it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from degarble.checkpoint.index import ShardIndex
from degarble.checkpoint.interface import TensorInfo
from degarble.checks.container.tensor_places import tensor_place
from degarble.evidence.weights import Shard
from degarble.finding import Finding, Fix, Location
from degarble.registry import check

STALE_SHARE = 0.5
"""If more of the index points to wrong files than to right ones, the index is at fault, not the tensors."""


@check("CKP103", symptom_of=("CKP105",))
def index_names_absent_tensor(
    index: ShardIndex, shards: Mapping[str, Shard], tensors: Mapping[str, TensorInfo]
) -> Iterator[Finding]:
    """The index lists a tensor that the file it points to does not hold.

    ## What it looks for
    Each entry of `weight_map` whose file is there and readable: the tensor must be in that file's header. The finding
    says whether another file holds it (the index is wrong) or none does (the tensor is lost).

    ## Why output turns to garbage
    The index promises the tensor, so tools that count parameters by the index see a complete model. The loader finds
    nothing to put into the slot and leaves it as allocated; with quantised models the check for unloaded weights is
    often off. A single scale that stays at its allocated value makes its layer compute nonsense.

    ## What you will see
    A healthy start, normal throughput and wrong answers if no file holds the tensor. If another file holds it, a
    KeyError in loaders that follow the index, and nothing at all in those that read every file.

    ## How to tell it from its look-alikes
    A file that is not there at all is CKP102. A tensor that neither the index nor any file names is CFG104, or QNT101
    for a companion. A header that cannot be read is CKP101 or CKP105, and its tensors are not counted here.

    ## How to confirm
    Read the first bytes of the named file: length, then JSON. Search the JSON for the tensor's name.

    ## How to repair it
    Held by another file: regenerate the index from the headers; safe unattended. Held by none: export the tensor again
    from the source model; striking the entry from the index only hides the loss.

    ## References
    vllm-project/vllm#57108
    """
    readable = {file: shard.tensors for file, shard in shards.items() if shard.problem is None}
    listed = Counter(index.weight_map.values())
    checked = sum(listed[file] for file in readable)
    astray = [
        (name, file) for name, file in index.weight_map.items() if file in readable and name not in readable[file]
    ]
    elsewhere = sum(name in tensors for name, _ in astray)
    if elsewhere > STALE_SHARE * checked:
        yield _stale(index, elsewhere, checked)
        astray = [(name, file) for name, file in astray if name not in tensors]
    for name, file in astray:
        yield _finding(index, name, file, tensors.get(name))


def _finding(index: ShardIndex, name: str, file: str, found: TensorInfo | None) -> Finding:
    where = f"{found.file} holds it" if found is not None else "no file holds it"
    return Finding(
        location=tensor_place(name, index.file, key=f"weight_map.{name}"),
        message=f"{index.file} says {name} is in {file}; it is not there: {where}",
        fold="elsewhere" if found is not None else "nowhere",
        fix=Fix(id="regenerate-index", safe=True) if found is not None else Fix(id="export-tensor", safe=False),
    )


def _stale(index: ShardIndex, elsewhere: int, checked: int) -> Finding:
    return Finding(
        location=Location(file=index.file, key="weight_map"),
        message=f"{index.file} points {elsewhere} of {checked} tensors to files that do not hold them, although others "
        "do: the index belongs to another split of this model",
        measured={"wrong_entries": elsewhere},
        bound={"wrong_entries": 0},
        fix=Fix(id="regenerate-index", safe=True),
    )

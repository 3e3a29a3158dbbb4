"""CKP104: files hold tensors that the index does not list; at worst the whole index is of another split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.architectures.interface import Architecture
from degarble.checkpoint.index import ShardIndex
from degarble.checks.container.tensor_places import tensor_place
from degarble.evidence.modules import Modules
from degarble.evidence.weights import Shard
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import check

REGENERATE = Fix(id="regenerate-index", safe=True)


@check("CKP104", symptom_of=("CKP103",))
def tensor_not_in_index(
    index: ShardIndex,
    shards: Mapping[str, Shard],
    modules: Modules | None = None,
    architecture: Architecture | None = None,
) -> Iterator[Finding]:
    """A weight file holds tensors that the index does not list.

    ## What it looks for
    Two things. A stale index: it names files that are not there, while the files that are there hold those tensors and
    are not named (an index of 30 shards left beside 15 new ones). And single tensors that are in a file and in no entry
    of `weight_map`: an error if the architecture needs the tensor, otherwise a warning.

    ## Why output turns to garbage
    A loader that follows the index never opens a file the index does not name, and treats an unlisted tensor as absent:
    the parameter keeps its initial or leftover values although the right bytes lie on the disk.

    ## What you will see
    Missing-parameter messages that name tensors you can see in the file; a model that answers from a few random layers;
    or different behaviour in two engines, one of which reads every file.

    ## How to tell it from its look-alikes
    Extra tensors that nothing needs (multi-token-prediction layers in a file of their own, leftovers of a conversion)
    are a warning. Two files that both hold a tensor are CKP107. An entry that points to the wrong file is CKP103.

    ## How to confirm
    Compare the set of keys in the index with the union of the headers.

    ## How to repair it
    Write the index anew from the headers of the files; nothing else changes, and it is safe unattended. If old and new
    shards lie together, first decide which set is meant.

    ## References
    Blaizzy/mlx-vlm#1827, Neph0s/CoSER#3
    """
    stale = _stale_index(index, shards)
    if stale is not None:
        yield stale
        return
    listed = index.weight_map.keys()
    unlisted = [
        (name, file)
        for file, shard in shards.items()
        for name in (shard.tensors if not shard.tensors.keys() <= listed else ())
        if name not in listed and name not in index.unsafe
    ]
    needed = _needed(modules, architecture) if unlisted else {}
    for name, file in unlisted:
        is_needed = needed.get(name, False)
        purpose = "which the model needs" if is_needed else "which the model does not need as far as is known"
        yield Finding(
            location=tensor_place(name, file),
            message=f"{file} holds {name}, {purpose}; {index.file} does not list it",
            severity=Severity.ERROR if is_needed else Severity.WARNING,
            fold="needed" if is_needed else "not needed",
            fix=REGENERATE,
        )


def _stale_index(index: ShardIndex, shards: Mapping[str, Shard]) -> Finding | None:
    """The index as a whole, if what it looks for in absent files lies in files that it does not name."""
    named = set(index.shards)
    unnamed = [shard for file, shard in shards.items() if file not in named and shard.tensors]
    absent = [file for file in named if file not in shards]
    if not absent or not unnamed:
        return None
    held = {name for shard in unnamed for name in shard.tensors}
    gone = set(absent)
    all_there = all(name in held for name, file in index.weight_map.items() if file in gone)
    if not all_there and len(absent) < len(named):
        return None
    return Finding(
        location=Location(file=index.file, key="weight_map"),
        message=f"{index.file} is stale: {len(absent)} of the {len(named)} files it names are not there, and "
        f"{len(unnamed)} files that it does not name hold {'the same' if all_there else 'other'} tensors",
        measured={"absent_files": len(absent), "unnamed_files": len(unnamed)},
        bound={"absent_files": 0, "unnamed_files": 0},
        fix=REGENERATE,
    )


def _needed(modules: Modules | None, architecture: Architecture | None) -> dict[str, bool]:
    """Tensor -> whether the architecture needs its module. Empty where the family is not known."""
    found: dict[str, bool] = {}
    if modules is None or architecture is None:
        return found
    for module in modules.values():
        name = module.canonical
        parameter = None if name is None else architecture.match(name + ".weight") or architecture.match(name)
        if parameter is not None and parameter.needed:
            found |= dict.fromkeys((info.name for info in module.parts.values()), True)
    return found

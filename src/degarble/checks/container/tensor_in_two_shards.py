"""CKP107: two files hold a tensor of the same name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checkpoint.index import ShardIndex
from degarble.checkpoint.interface import TensorInfo
from degarble.checks.container.tensor_places import tensor_place
from degarble.evidence.weights import Shard
from degarble.finding import Finding, Fix, Severity
from degarble.registry import check


@check("CKP107")
def tensor_in_two_shards(
    shards: Mapping[str, Shard], tensors: Mapping[str, TensorInfo], index: ShardIndex | None = None
) -> Iterator[Finding]:
    """Two weight files hold a tensor of the same name.

    ## What it looks for
    Every tensor name over all weight files that make up the model.

    ## Why output turns to garbage
    Which of the two is used depends on the loader: the file that the index names, or whichever is read last. If the
    files are of different exports, the model becomes a mixture: payloads of one with scales of the other.

    ## What you will see
    Different output in two engines from one folder, or noise in the layers of the doubled file after an upgrade of the
    engine changed the order of reading.

    ## How to tell it from its look-alikes
    A name twice in one header is CKP105. Mistral's `consolidated*.safetensors` and adapters lie beside the model by
    design and are not counted as its files. If the index does not name one of the two files at all, loaders that keep
    to the index are safe, and this is a warning.

    ## How to confirm
    Compare the bytes of the two tensors: equal means a harmless leftover, different means two exports.

    ## How to repair it
    Decide which export is meant and move the other files away. Which one that is cannot be told from the folder, so it
    is not safe unattended.

    ## References
    The format's own rule of unique names: the README of huggingface/safetensors
    """
    if len(tensors) == sum(len(shard.tensors) for shard in shards.values()):
        return
    named = frozenset(index.shards) if index is not None else None
    seen: dict[str, str] = {}
    for file, shard in shards.items():
        for name in shard.tensors:
            first = seen.setdefault(name, file)
            if first != file:
                yield _finding(name, first, file, named)


def _finding(name: str, first: str, second: str, named: frozenset[str] | None) -> Finding:
    idle = None if named is None else next((file for file in (second, first) if file not in named), None)
    file = idle or second
    other = first if file == second else second
    why = f"; the index does not name {file}" if idle else ""
    return Finding(
        location=tensor_place(name, file),
        message=f"{name} is in {file} and in {other}{why}",
        severity=Severity.WARNING if idle else None,
        places=(tensor_place(name, file), tensor_place(name, other)),
        fold=f"{other} {file}",
        fix=Fix(id="remove-doubled-file", safe=False),
    )

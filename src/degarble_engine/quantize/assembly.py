"""The quantised checkpoint: the source's shards with some tensors exchanged for those of the layer files.

Bytes are copied, never read as numbers again. The folder appears complete, with everything in it verified, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from degarble.checkpoint.folder import LocalFolder
from degarble.checkpoint.index import MODEL_INDEX
from degarble.checkpoint.rope import Segment
from degarble.checkpoint.workspace import Workspace
from degarble.errors import TargetError
from degarble.evidence import Evidence
from degarble.evidence.modules import Modules
from degarble.formats.interface import PAYLOAD
from degarble_engine.quantize.layer_file import MatrixRecord, read_layer

LEFT_OUT = (".gguf", ".bin", ".pt", ".pth")
"""Other forms of the weights, which would contradict the new ones."""


def assemble(
    evidence: Evidence,
    layers: Iterable[Path],
    declaration: dict[str, Any],
    out: Path,
    finish: Callable[[Path, list[MatrixRecord]], None],
    beside: Mapping[str, Any],
) -> list[MatrixRecord]:
    """Write `out`, with JSON files `beside` the config; `finish` adds to the still hidden folder, and may refuse it."""
    modules, plain = evidence.get("modules"), evidence.get("tensors")
    work = Workspace(evidence.get("source"))
    for name in work.files():
        if name.endswith(LEFT_OUT):
            work.delete(name)
    records: list[MatrixRecord] = []
    for file in layers:
        origin = LocalFolder(file.parent)
        tensors, found = read_layer(file)
        owners = {record.module: _taken_out(work, modules, record.module) for record in found}
        for name, info in tensors.items():
            shard = plain[name].file if name in plain else owners[name.rpartition(".")[0]]
            work.put(shard, name, info.dtype, info.shape, (Segment(info.nbytes, None, file.name, info.start, origin),))
        records += found
    work.json("config.json")["quantization_config"] = declaration
    for name, value in beside.items():
        work.write(name, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    _count(work)
    work.save(out, lambda folder: finish(folder, records))
    return records


def _taken_out(work: Workspace, modules: Modules, name: str) -> str:
    """Remove a plain weight; the shard it was in. A bias stays."""
    payload = modules[name].part(PAYLOAD)
    if payload is None:
        raise TargetError(f"{name}: the weight is gone")
    work.shard(payload.file).drop(payload.name)
    if MODEL_INDEX in work.files():
        work.json(MODEL_INDEX)["weight_map"].pop(payload.name, None)
    return payload.file


def _count(work: Workspace) -> None:
    """The index's own sum of bytes."""
    if MODEL_INDEX not in work.files():
        return
    index = work.json(MODEL_INDEX)
    shards = sorted(set(index["weight_map"].values()))
    total = sum(slot.nbytes for shard in shards for slot in work.shard(shard).tensors.values())
    index.setdefault("metadata", {})["total_size"] = total

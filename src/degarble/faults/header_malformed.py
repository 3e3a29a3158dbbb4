"""Plants CKP105."""

from __future__ import annotations

from typing import Any

import msgspec

from degarble.checkpoint.interface import TensorInfo
from degarble.evidence.weights import Shard
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.shard_missing import INDEX
from degarble.finding import Location


def _shard(patient: Patient, container: str = "") -> Shard:
    shards: dict[str, Shard] = patient.evidence.find("shards") or {}
    return patient.pick(shard for name, shard in shards.items() if name.endswith(container))


@fault("CKP105")
def header_malformed(patient: Patient) -> Location:
    """Put zeros over the first bytes of a weight file."""
    shard = _shard(patient)
    patient.workspace.overwrite(shard.file, 0, bytes(8))
    return Location(file=shard.file, byte_offset=0)


@fault("CKP105")
def header_malformed_trailing(patient: Patient) -> Location:
    """Append bytes that no tensor claims, as a download resumed at the wrong place does."""
    shard = _shard(patient)
    patient.workspace.append(shard.file, bytes(4096))
    return Location(file=shard.file)


@fault("CKP105")
def header_malformed_overlap(patient: Patient) -> Location:
    """Give two tensors of equal size the same bytes."""
    shard = _shard(patient, ".safetensors")
    twins: dict[int, list[TensorInfo]] = {}
    for info in shard.tensors.values():
        twins.setdefault(info.nbytes, []).append(info)
    first, second = patient.pick(group for size, group in twins.items() if size and len(group) > 1)[:2]
    entries = _entries(patient, shard.file)
    entries[second.name]["data_offsets"] = entries[first.name]["data_offsets"]
    _write(patient, shard, entries)
    return Location(file=shard.file, tensor=second.name)


@fault("CKP105")
def header_malformed_no_json(patient: Patient) -> Location:
    """Lose one bracket of the header."""
    shard = _shard(patient, ".safetensors")
    assert shard.header is not None
    raw = patient.workspace.source().read(shard.file, 8, shard.header.data_start - 8)
    patient.workspace.overwrite(shard.file, 8 + raw.rindex(b"]"), b" ")
    return Location(file=shard.file)


@fault("CKP105")
def header_malformed_value_type(patient: Patient) -> Location:
    """Give the first metadata value of a GGUF a type that does not exist."""
    shard = _shard(patient, ".gguf")
    start = patient.workspace.source().read(shard.file, 24, 8)
    patient.workspace.overwrite(shard.file, 32 + int.from_bytes(start, "little"), (99).to_bytes(4, "little"))
    return Location(file=shard.file)


@fault("CKP105")
def header_malformed_index(patient: Patient) -> Location:
    """Replace the index by an error page."""
    if INDEX not in patient.workspace.files():
        raise NotApplicable("no index")
    patient.workspace.write(INDEX, b"<html>503</html>")
    return Location(file=INDEX)


def _entries(patient: Patient, file: str) -> dict[str, Any]:
    source = patient.workspace.source()
    length = int.from_bytes(source.read(file, 0, 8), "little")
    return msgspec.json.decode(source.read(file, 8, length), type=dict[str, Any])


def _write(patient: Patient, shard: Shard, entries: dict[str, Any]) -> None:
    """Put a header of the same length in place of the old one."""
    assert shard.header is not None
    text = msgspec.json.encode(entries)
    room = shard.header.data_start - 8
    if len(text) > room:
        raise NotApplicable("the new header is longer")
    patient.workspace.overwrite(shard.file, 8, text + b" " * (room - len(text)))

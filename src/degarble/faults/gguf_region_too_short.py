"""Plants CKP106."""

from __future__ import annotations

from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.rope import cut
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location


@fault("CKP106")
def gguf_region_too_short(patient: Patient) -> Location:
    """Write a tensor without its last rows and go on with the next one."""
    gguf = _gguf(patient)
    info = patient.pick(_with_neighbour(gguf))
    short = max(2 * gguf.alignment, info.nbytes // 8)
    edit = patient.workspace.shard(gguf.file)
    edit.tensors[info.name].segments = tuple(cut(edit.tensors[info.name].segments, 0, info.nbytes - short))
    edit.changed = True
    return Location(file=gguf.file, tensor=info.name)


@fault("CKP106")
def gguf_region_too_short_misaligned(patient: Patient) -> Location:
    """Move the offset of one tensor off the alignment."""
    gguf = _gguf(patient)
    info = patient.pick(_with_neighbour(gguf))
    name = info.name.encode()
    raw = patient.workspace.source().read(gguf.file, 0, gguf.data_start)
    start = raw.rindex(len(name).to_bytes(8, "little") + name) + 8 + len(name)
    place = start + 4 + 8 * len(info.shape) + 4
    offset = info.start - gguf.data_start + 8
    patient.workspace.overwrite(gguf.file, place, offset.to_bytes(8, "little"))
    return Location(file=gguf.file, tensor=info.name)


def _gguf(patient: Patient) -> GgufFile:
    gguf: GgufFile | None = patient.evidence.find("gguf")
    if gguf is None:
        raise NotApplicable("not GGUF")
    return gguf


def _with_neighbour(gguf: GgufFile) -> list[TensorInfo]:
    """Tensors that are not the last and large enough to lose rows."""
    ordered = sorted(gguf.tensors.values(), key=lambda info: info.start)
    return [info for info in ordered[:-1] if info.nbytes >= 16 * gguf.alignment]

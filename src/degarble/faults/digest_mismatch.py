"""Plants CKP108."""

from __future__ import annotations

import hashlib

from degarble.checkpoint.interface import TensorInfo
from degarble.faults.interface import Patient, fault
from degarble.finding import Location


@fault("CKP108")
def digest_mismatch(patient: Patient) -> Location:
    """List the digests of all weight files, then flip the lowest bit of one norm weight."""
    norms = patient.modules(lambda module: module.kind == "norm" and module.payload is not None)
    info: TensorInfo = patient.pick(norms).any_part
    source = patient.workspace.source()
    lines: list[str] = []
    for name in patient.evidence.get("shards"):
        digest = hashlib.sha256()
        for chunk in source.chunks(name):
            digest.update(chunk)
        lines.append(f"{digest.hexdigest()}  {name}\n")
    patient.workspace.write("SHA256SUMS", "".join(lines).encode())
    (byte,) = source.read(info.file, info.start, 1)
    patient.workspace.overwrite(info.file, info.start, bytes([byte ^ 1]))
    return Location(file=info.file)

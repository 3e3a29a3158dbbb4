"""Plants CKP109."""

from __future__ import annotations

from degarble.faults.interface import Patient, fault
from degarble.finding import Location

ZIP_START = b"PK\x03\x04" + bytes(60)
"""As torch.save writes it; nothing opens the file, so nothing more is needed."""


@fault("CKP109")
def unsafe_container(patient: Patient) -> Location:
    """Put weights in a pickle beside the others."""
    name = patient.pick(
        (
            "pytorch_model.bin",
            "adapter_model.bin",
            "consolidated.00.pth",
            "model.pt",
            "pytorch_model-00001-of-00002.bin",
        )
    )
    patient.workspace.write(name, ZIP_START)
    return Location(file=name)

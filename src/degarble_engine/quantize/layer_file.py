"""What one layer became, as a file of its own in the working folder: complete or not there.

A safetensors file whose metadata has the records of its matrices. A job that was killed finds the layers that are done,
and the final shards are put together from these files' bytes without reading them as numbers again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from degarble.checkpoint.folder import LocalFile
from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.safetensors import header_bytes, read_header
from degarble.checkpoint.tensor_data import Array
from degarble.checkpoint.workspace import dtype_name
from degarble.errors import DegarbleError, UsageError
from degarble.whole_file import write_whole


class MatrixRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one matrix."""

    module: str
    shape: tuple[int, int]
    tokens: int
    """Of calibration that reached it; 0 for a method that needs none."""
    error: float
    """Root of what is left of the error over the root of the matrix, in the method's own measure: of outputs on the
    calibration text where there is one, else of weights."""
    plain_error: float
    """The same of rounding to nearest."""
    bits: float
    """Stored bits a weight, with scales and zero points."""
    digest: str
    """Of the fp32 values that readers must get."""
    notes: tuple[str, ...] = ()
    layer_notes: tuple[str, ...] = ()
    """Of the whole layer; only its first matrix has them."""


def layer_name(index: int) -> str:
    """File name of a layer."""
    return f"layer-{index:05d}.safetensors"


def write_layer(
    file: Path, tensors: Mapping[str, Array], records: list[MatrixRecord], notes: Sequence[str] = ()
) -> None:
    """Write it whole."""
    if records:
        records = [msgspec.structs.replace(records[0], layer_notes=tuple(notes)), *records[1:]]
    data = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    entries = ((name, dtype_name(array), array.shape, array.nbytes) for name, array in data.items())
    header = header_bytes(entries, {"records": msgspec.json.encode(records).decode()})
    write_whole(file, b"".join([header, *(array.tobytes() for array in data.values())]))


def read_layer(file: Path) -> tuple[Mapping[str, TensorInfo], list[MatrixRecord]]:
    """Headers and records. Raises UsageError for a file that was damaged since."""
    try:
        header = read_header(LocalFile(file, "safetensors"), file.name)
        return header.tensors, msgspec.json.decode(header.metadata["records"], type=list[MatrixRecord])
    except (DegarbleError, KeyError, msgspec.DecodeError) as error:
        raise UsageError(f"{file}: damaged ({error}): delete its folder to start anew") from None

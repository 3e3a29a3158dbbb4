"""Exact facts of GGUF blocks: the 16- and 32-bit floats and exponent bytes between the codes.

    Q4_K  d at 0, dmin at 2      Q6_K  d at 208      Q8_K  fp32 d at 0

A NaN in one `d` ruins 32 or 256 weights. Offsets are those of ggml's `ggml-common.h`. IQ1_M spreads its d over the top
nibbles of four words.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.float_bits import FLOAT_BITS
from degarble.profile.float_rows import profile_floats
from degarble.profile.lines import Chunk, block_type
from degarble.profile.tensor_profile import RowSet, TensorProfile
from degarble.profile.word_rows import profile_words

Field = tuple[int, str]
"""(byte offset in the block, dtype)"""

FIELDS: Mapping[str, tuple[Field, ...]] = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS", "Q1_0"), ((0, "F16"),)),
    **dict.fromkeys(("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), ((0, "F16"),)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K", "Q8_1"), ((0, "F16"), (2, "F16"))),
    "Q2_K": ((80, "F16"), (82, "F16")),
    "Q3_K": ((108, "F16"),),
    "Q6_K": ((208, "F16"),),
    "Q8_K": ((0, "F32"),),
    "TQ1_0": ((52, "F16"),),
    "TQ2_0": ((64, "F16"),),
    "MXFP4": ((0, "F8_E8M0"),),
}


def profile_blocks(chunk: Chunk) -> list[TensorProfile]:
    """One partial profile a tensor: repeated bytes from all of it, numbers from the fields. Columns count blocks."""
    profiles = profile_words(chunk)
    kind = block_type(chunk.tensors[0].dtype)
    if kind is None:
        return profiles
    blocks = chunk.raw.reshape(len(chunk.tensors), -1, kind.type_size)  # [tensors, blocks, bytes]
    fields = [_field(blocks, field) for field in FIELDS.get(kind.name, ())]
    if kind.name == "IQ1_M":
        fields = [(_iq1_m_delta(blocks), "F16")]
    for raw, dtype in fields:
        counted = profile_floats(_field_chunk(chunk, raw, dtype, kind.type_size), FLOAT_BITS[dtype])
        profiles = [_with_numbers(old, new) for old, new in zip(profiles, counted, strict=True)]
    return profiles


def _field(blocks: Array, field: Field) -> tuple[Array, str]:
    """[tensors, blocks, bytes of the number]"""
    at, dtype = field
    unsigned = FLOAT_BITS[dtype].unsigned
    strided = np.ndarray(blocks.shape[:2], unsigned, blocks, at, blocks.strides[:2])
    return strided.copy().view(np.uint8).reshape(*blocks.shape[:2], unsigned.itemsize), dtype


def _iq1_m_delta(blocks: Array) -> Array:
    words = np.ascontiguousarray(blocks[:, :, 48:56]).view("<u2")  # [tensors, blocks, 4]
    delta = (
        (words[..., 0] >> 12)
        | ((words[..., 1] >> 8) & 0xF0)
        | ((words[..., 2] >> 4) & 0xF00)
        | (words[..., 3] & 0xF000)
    )
    return np.ascontiguousarray(delta).view(np.uint8).reshape(*blocks.shape[:2], 2)


def _field_chunk(chunk: Chunk, raw: Array, dtype: str, type_size: int) -> Chunk:
    """The chunk that holds only one field: a tensor of [rows, blocks]."""
    size = FLOAT_BITS[dtype].unsigned.itemsize
    tensors = []
    for info in chunk.tensors:
        columns = info.nbytes // type_size // max(_rows_of(info.shape), 1)
        tensors.append(msgspec.structs.replace(info, shape=(*info.shape[:-1], columns)))
    lines = chunk.num_rows if chunk.lines_per_row else 1
    return Chunk(
        tensors=tensors,
        raw=raw.reshape(len(tensors), lines, -1),
        start=chunk.start // type_size * size,
        lines_per_row=1 if chunk.lines_per_row else 0,
        is_detailed=True,
    )


def _rows_of(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[:-1], dtype=object))


def _with_numbers(old: TensorProfile, new: TensorProfile) -> TensorProfile:
    """Add what one field tells. A row is zero where every field of it is."""
    first = old.count == 0
    joined = old.merge(new) if not first else new
    counts = new.counts if first else joined.counts
    return msgspec.structs.replace(
        old,
        count=old.count + new.count,
        nonfinite=old.nonfinite + new.nonfinite,
        first_nonfinite=joined.first_nonfinite,
        absmax=joined.absmax,
        zero_rows=new.zero_rows if first else _both(old.zero_rows, new.zero_rows),
        counts=counts,
    )


def _both(left: RowSet, right: RowSet) -> RowSet:
    rows = tuple(sorted(set(left.first) & set(right.first)))
    return RowSet(len(rows), rows)

"""Scales inside GGUF blocks: positions of NaN, zero rows, and fields against gguf's own dequantisation."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array
from degarble.executor import ThreadExecutor
from degarble.formats.gguf_types import GGML_TYPE_BY_NAME
from degarble.profile.gguf_rows import FIELDS
from degarble.profile.raw import profile_tensors
from degarble.profile.tensor_profile import TensorProfile
from tests.memory_source import MemorySource

HALVES = sorted(name for name, fields in FIELDS.items() if all(dtype == "F16" for _, dtype in fields))


def blocks(kind: str, rows: int, columns: int) -> Array:
    """[rows, columns, bytes] of random codes with scales near 0.01."""
    rng = np.random.default_rng(len(kind))
    raw = rng.integers(0, 256, (rows, columns, GGML_TYPE_BY_NAME[kind].type_size)).astype(np.uint8)
    for at, dtype in FIELDS[kind]:
        if dtype == "F16":
            scale = rng.uniform(0.005, 0.02, (rows, columns, 1)).astype(np.float16)
            raw[:, :, at : at + 2] = scale.view(np.uint8).reshape(rows, columns, 2)
    return raw


def profile(kind: str, raw: Array) -> TensorProfile:
    shape = (raw.shape[0], raw.shape[1] * GGML_TYPE_BY_NAME[kind].block_size)
    info = TensorInfo("t", f"GGUF:{kind}", shape, "w", 0, raw.nbytes)
    result = profile_tensors(MemorySource({"w": raw.tobytes()}), {"t": info}, ThreadExecutor(1))
    assert not result.unread
    return result.profiles["t"]


@pytest.mark.parametrize("kind", HALVES)
def test_a_nan_scale_is_found_in_its_block(kind: str) -> None:
    for at, _ in FIELDS[kind]:
        raw = blocks(kind, 6, 5)
        assert profile(kind, raw).nonfinite == 0
        raw[3, 4, at : at + 2] = np.array([np.nan], np.float16).view(np.uint8)
        found = profile(kind, raw)
        assert (found.nonfinite, found.first_nonfinite) == (1, (3, 4))


@pytest.mark.parametrize("kind", [kind for kind in HALVES if kind not in ("Q1_0", "Q8_1")])
def test_fields_are_where_gguf_reads_them(kind: str) -> None:
    """Infinite fields must make the dequantised block infinite or NaN, and only that block."""
    for at, _ in FIELDS[kind]:
        raw = blocks(kind, 2, 3)
        raw[1, 1, at : at + 2] = np.array([np.inf], np.float16).view(np.uint8)
        with np.errstate(invalid="ignore", over="ignore"):
            try:
                values = dequantize(raw.reshape(2, -1), GGMLQuantizationType[kind])
            except NotImplementedError:
                pytest.skip("gguf cannot dequantise it")
        is_bad = ~np.isfinite(values.reshape(2, 3, -1)).all(axis=2)
        assert is_bad.tolist() == [[False] * 3, [False, True, False]]


def test_zero_rows_need_every_field_to_be_zero() -> None:
    raw = blocks("Q4_K", 4, 2)
    raw[1, :, :4] = 0
    raw[2, :, :2] = 0
    found = profile("Q4_K", raw)
    assert found.zero_rows.first == (1,)
    assert found.counts is not None
    assert (found.counts.zeros, found.counts.first_zero) == (2 + 2 + 2, (1, 0))


def test_exponent_bytes_of_mxfp4() -> None:
    raw = blocks("MXFP4", 8, 4)
    raw[:, :, 0] = 120
    raw[5, 2, 0] = 255
    found = profile("MXFP4", raw)
    assert (found.nonfinite, found.first_nonfinite, found.absmax) == (1, (5, 2), 2.0**-7)

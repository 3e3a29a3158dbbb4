"""The pass over the bytes against its slow twin: any dtype, any shape, any cut, specials anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.executor import ThreadExecutor
from degarble.profile import lines, raw
from degarble.profile.float_bits import FLOAT_BITS
from degarble.profile.raw import profile_tensors
from degarble.profile.reference import constant_rows_reference, numbers_reference
from tests.memory_source import MemorySource
from tests.profile.memory import checkpoint, profile_one

FLOATS = sorted(FLOAT_BITS)
SHAPES = st.one_of(
    st.tuples(st.integers(1, 400)),
    st.tuples(st.integers(1, 40), st.integers(1, 200)),
    st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 96)),
)


def random_floats(dtype: str, shape: tuple[int, ...], seed: int, specials: float) -> Array:
    """Ordinary values, a share of arbitrary bit patterns, and some rows of zeros."""
    rng = np.random.default_rng(seed)
    unsigned = FLOAT_BITS[dtype].unsigned
    values = np.ldexp(1.0, rng.integers(-6, 4, shape)) if dtype == "F8_E8M0" else rng.normal(size=shape)
    array = values.astype(DTYPES[dtype])
    patterns = array.view(unsigned)
    wild = rng.integers(0, 2 ** (8 * unsigned.itemsize) - 1, shape, dtype=np.uint64, endpoint=True).astype(unsigned)
    chosen = rng.random(shape) < specials
    patterns[chosen] = wild[chosen]
    if len(shape) > 1 and dtype != "F8_E8M0":
        rows = patterns.reshape(-1, shape[-1])
        rows[rng.random(len(rows)) < 0.2] = 0
    return array


def assert_same_numbers(array: Array, dtype: str, profile: Any, has_rows: bool) -> None:
    source, infos = checkpoint({"t": array})
    with np.errstate(invalid="ignore"):
        slow = numbers_reference(infos["t"], np.frombuffer(source.read("w", infos["t"].start), np.uint8))
    assert profile.count == slow["count"]
    assert (profile.nonfinite, profile.first_nonfinite) == (slow["nonfinite"], slow["first_nonfinite"])
    assert profile.absmax == slow["absmax"]
    if has_rows:
        assert (profile.zero_rows.count, profile.zero_rows.first) == (len(slow["zero_rows"]), slow["zero_rows"])
    if profile.counts is not None:
        counts = profile.counts
        assert (counts.zeros, counts.first_zero) == (slow["zeros"], slow["first_zero"])
        assert (counts.negatives, counts.first_negative) == (slow["negatives"], slow["first_negative"])
        assert counts.subnormals == slow["subnormals"]
        assert counts.min_positive == slow["min_positive"]
    if profile.sums is not None and np.isfinite(slow["total"]):
        assert profile.sums[0] == pytest.approx(slow["total"], rel=1e-9, abs=1e-9 * max(1, slow["absmax"] or 1))


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=25, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 2**32), specials=st.sampled_from([0.0, 0.01, 0.5]), detailed=st.booleans())
def test_floats_equal_the_reference(
    dtype: str, shape: tuple[int, ...], seed: int, specials: float, detailed: bool
) -> None:
    array = random_floats(dtype, shape, seed, specials)
    profile = profile_one(array, detailed=detailed)
    has_rows = array[..., :1].size > 0 and array.shape[-1] * array.itemsize >= lines.MIN_ROW_BYTES and array.ndim > 1
    assert_same_numbers(array, dtype, profile, has_rows)


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F32"])
@pytest.mark.parametrize("chunk", [64, 512, 4096])
@settings(max_examples=8, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 2**32))
def test_any_cut_gives_the_same(dtype: str, chunk: int, shape: tuple[int, ...], seed: int) -> None:
    array = random_floats(dtype, shape, seed, 0.02)
    whole = profile_one(array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK_BYTES", chunk)
        patch.setattr(lines, "LINE_BYTES", 256)
        patch.setattr(raw, "UNIT_BYTES", 2 * chunk)
        patch.setattr(raw, "SMALL_BYTES", 0)
        patch.setattr(raw, "_layout", raw._layout.__wrapped__)
        cut = profile_one(array, threads=2)
    for name in ("count", "nonfinite", "first_nonfinite", "absmax", "constant"):
        assert getattr(cut, name) == getattr(whole, name), name
    assert cut.counts == whole.counts
    if array.ndim > 1 and lines.MIN_ROW_BYTES <= array.shape[-1] * array.itemsize <= chunk:
        assert cut.zero_rows == whole.zero_rows
        assert cut.num_rows == whole.num_rows


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 30),
    columns=st.integers(8, 300),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([np.uint8, np.int8, np.int32, np.int64]),
)
def test_words_find_every_row_that_repeats(rows: int, columns: int, seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    array = rng.integers(-100, 100, (rows, columns)).astype(dtype)
    chosen = np.flatnonzero(rng.random(rows) < 0.3)
    array[chosen] = rng.integers(0, 3, (len(chosen), 1)).astype(dtype)
    profile = profile_one(array)
    row_bytes = columns * array.itemsize
    if row_bytes < lines.MIN_ROW_BYTES:
        return
    slow = constant_rows_reference(array.view(np.uint8).reshape(-1), rows)
    assert profile.constant_rows.first == slow
    if array.itemsize > 1:
        assert profile.zero_rows.first == tuple(row for row in slow if not array[row].any())


def test_minus_zero_nibbles_are_zero() -> None:
    array = np.random.default_rng(0).integers(1, 7, (6, 128)).astype(np.uint8)
    array[2, ::2], array[2, 1::2] = 0x80, 0x08
    array[4] = 0
    assert profile_one(array).zero_rows.first == (2, 4)


def test_constant_pattern_and_holes() -> None:
    array = np.full((64, 512), 0x88888888 - (1 << 32), np.int32)
    assert profile_one(array).constant == 0x8888888888888888
    assert profile_one(array).flat_bytes == array.nbytes
    varied = np.random.default_rng(1).integers(0, 2**31, (64, 2048)).astype(np.int32)
    varied[5, 1024:] = 0
    profile = profile_one(varied)
    assert (profile.constant, profile.flat_bytes, profile.first_flat) == (None, 4096, 5 * 8192 + 4096)
    assert not profile.constant_rows.count


def test_zero_weight_of_either_sign() -> None:
    array = np.zeros((40, 64), np.float32)
    array[3] = -0.0
    assert profile_one(array).is_zero
    array[7, 7] = 1
    assert not profile_one(array).is_zero


def test_units_of_many_tensors_equal_single_ones() -> None:
    rng = np.random.default_rng(3)
    arrays = {f"m{n}.scale": rng.normal(size=(24, 16)).astype(np.float16) for n in range(50)}
    arrays |= {f"m{n}.codes": rng.integers(-9, 9, (24, 64)).astype(np.int32) for n in range(50)}
    arrays["m7.scale"][3, 5] = np.nan
    source, infos = checkpoint(arrays)
    together = profile_tensors(source, infos, ThreadExecutor(2)).profiles
    for name, info in infos.items():
        alone = profile_tensors(source, {name: info}, ThreadExecutor(1)).profiles[name]
        assert together[name] == alone, name
    assert together["m7.scale"].first_nonfinite == (3, 5)


def test_what_cannot_be_read_is_named() -> None:
    source, infos = checkpoint({"whole": np.ones((4, 64), np.float32), "short": np.ones((4, 64), np.float32)})
    cut = MemorySource({"w": source.read("w", 0, infos["short"].start + 100)})
    result = profile_tensors(cut, infos, ThreadExecutor(1))
    assert set(result.profiles) == {"whole"}
    assert "ends before" in result.unread["short"]


def test_sampling_reads_less_and_says_how_much() -> None:
    array = np.random.default_rng(0).normal(size=(16384, 512)).astype(np.float32)
    source, infos = checkpoint({"t": array})
    profile = profile_tensors(source, infos, ThreadExecutor(1), is_sampled=True).profiles["t"]
    assert 0 < profile.num_rows < 16384 / 8
    assert profile.count == profile.num_rows * 512

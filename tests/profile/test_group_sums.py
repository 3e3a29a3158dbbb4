"""Sums by look-up against sums over unpacked codes; counts of units against counts of codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import Array
from degarble.formats.packing import pack_words
from degarble.profile.code_stream import CodeStream, units_of_codes, units_of_words
from degarble.profile.code_sums import spill_of_words
from degarble.profile.codes import code_stats
from degarble.profile.group_sums import LONGEST, GroupSums, group_sums, half_size, sums_of_codes
from degarble.profile.kernels import Kernels, compiled
from degarble.profile.scratch import Scratch
from degarble.profile.unit_counts import histogram, spill_of_stream, unit_counts

SLOW = Kernels()
"""The loops as Python runs them."""
SIZES = {
    2: (8, 16, 24, 128),
    3: (8, 32, 128, 96),
    4: (8, 128, 24, 256, 32, 56, 1024, 2080),
    8: (4, 12, 32, 128, 264, 512),
}


def random_codes(seed: int, num_bits: int, outputs: int, inputs: int) -> Array:
    """uint8, now and then with a row of one code, as extremes alone would overflow a field."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 1 << num_bits, (outputs, inputs), np.uint8)
    codes[seed % outputs] = rng.choice([0, 1, (1 << num_bits) - 1])
    return codes


def stream_of(codes: Array, num_bits: int) -> CodeStream:
    return CodeStream(units_of_codes(codes, num_bits), num_bits, False)


def assert_same(one: GroupSums | None, other: GroupSums) -> None:
    assert one is not None and (one.size, one.halves_without) == (other.size, other.halves_without)
    for field in ("total", "squares", "zeros", "ones", "tops"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 999), num_bits=st.sampled_from([2, 3, 4, 5, 8]), outputs=st.integers(1, 4))
def test_sums_by_look_up_are_exact(data: st.DataObject, seed: int, num_bits: int, outputs: int) -> None:
    size = data.draw(st.sampled_from(SIZES[num_bits if num_bits != 5 else 8]))
    groups = data.draw(st.integers(1, 3))
    codes = random_codes(seed, num_bits, outputs, groups * size)
    stream = stream_of(codes, num_bits)
    indices = Scratch().indices(stream)
    grouped = codes.reshape(outputs, groups, size)
    assert_same(group_sums(stream, indices, size, Scratch()), sums_of_codes(grouped, num_bits))
    np.testing.assert_array_equal(
        histogram(unit_counts(indices), stream), np.bincount(codes.reshape(-1), minlength=1 << num_bits)
    )


@pytest.mark.parametrize("width", [4, 8])
def test_the_largest_codes_overflow_no_field(width: int) -> None:
    for size in (LONGEST[width] // 8 * 8, 2 * LONGEST[width], 4096):
        codes = np.full((2, 3 * size), (1 << width) - 1, np.uint8)
        stream = stream_of(codes, width)
        indices = Scratch().indices(stream)
        assert_same(group_sums(stream, indices, size, Scratch()), sums_of_codes(codes.reshape(2, 3, size), width))


@pytest.mark.parametrize(("num_bits", "size"), [(4, 2), (4, 4), (4, 12), (4, 7), (8, 3), (8, 6)])
def test_groups_of_no_whole_units_are_left_to_the_slow_twin(num_bits: int, size: int) -> None:
    codes = random_codes(0, num_bits, 2, size * 4)
    stream = stream_of(codes, num_bits)
    assert group_sums(stream, Scratch().indices(stream), size, Scratch()) is None
    slow = sums_of_codes(codes.reshape(2, 4, size), num_bits)
    assert (slow.halves_without is None) == (half_size(size) == size)
    np.testing.assert_array_equal(slow.total, codes.reshape(2, 4, size).sum(axis=2))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 999), num_bits=st.sampled_from([2, 3, 4, 8]), outputs=st.integers(1, 3), words=st.integers(1, 4)
)
def test_packed_words_and_codes_make_the_same_stream(seed: int, num_bits: int, outputs: int, words: int) -> None:
    codes = random_codes(seed, num_bits, outputs, 32 * words)
    packed = pack_words(codes, num_bits)
    units = units_of_words(np.ascontiguousarray(packed), num_bits)
    np.testing.assert_array_equal(units, units_of_codes(codes, num_bits))
    stream = CodeStream(units, num_bits, False)
    np.testing.assert_array_equal(stream.codes(units), codes)
    places = np.random.default_rng(seed).integers(0, codes.size, 20)
    np.testing.assert_array_equal(stream.at(places), codes.reshape(-1)[places])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), num_bits=st.sampled_from([2, 4]), words=st.integers(1, 40), is_wide=st.booleans())
def test_spill_in_words_is_that_of_codes(seed: int, num_bits: int, words: int, is_wide: bool) -> None:
    codes = random_codes(seed, num_bits, 3, 32 * words)
    codes[codes < 3] = 0
    packed = np.ascontiguousarray(pack_words(codes, num_bits))
    stored = packed.reshape(-1)
    by_word = codes.reshape(1, -1, 32 // num_bits)
    (slow,) = code_stats(codes.reshape(1, 3, -1, 32), None, num_bits, by_word)
    zeros, odd = spill_of_words(stored.view("<u8" if is_wide and stored.size % 2 == 0 else "<u4"), num_bits)
    assert zeros == slow.num_spill
    assert slow.spill is None or odd / zeros == slow.spill
    if num_bits == 4:
        stream = CodeStream(units_of_words(packed, 4), 4, False)
        assert spill_of_stream(unit_counts(Scratch().indices(stream)), stream) == (zeros, odd)


def assert_kernels_agree(kernels: Kernels, codes: Array, num_bits: int, groups: int) -> None:
    """With look-ups, in everything that `stream_sums` gives."""
    inputs = codes.shape[1]
    stream, size = stream_of(codes, num_bits), inputs // groups
    with np.errstate(over="ignore"):
        found = kernels.sums(stream, size)
    indices = Scratch().indices(stream)
    expected = group_sums(stream, indices, size, Scratch())
    assert found is not None and expected is not None
    assert_same(found[0], expected)
    np.testing.assert_array_equal(found[1], histogram(unit_counts(indices), stream))
    if num_bits == 4 and inputs % 16 == 0:
        with np.errstate(over="ignore"):
            assert kernels.spill(stream) == spill_of_stream(unit_counts(indices), stream)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 999), num_bits=st.sampled_from([2, 3, 4, 5, 6, 7, 8]))
def test_kernels_agree_with_look_ups_even_as_plain_python(data: st.DataObject, seed: int, num_bits: int) -> None:
    size = data.draw(st.sampled_from(SIZES.get(num_bits, SIZES[8])[:4]))
    outputs, groups = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    assert_kernels_agree(SLOW, random_codes(seed, num_bits, outputs, groups * size), num_bits, groups)


@pytest.mark.parametrize(("num_bits", "size"), [(4, 2), (4, 4), (4, 12), (4, 7), (8, 3), (8, 6)])
def test_kernels_leave_the_same_groups_to_the_slow_twin(num_bits: int, size: int) -> None:
    assert SLOW.sums(stream_of(random_codes(0, num_bits, 2, size * 4), num_bits), size) is None


def test_compiled_kernels_agree_with_look_ups() -> None:
    pytest.importorskip("numba")
    kernels = compiled()
    assert kernels is not None
    for num_bits in range(2, 9):
        for size in SIZES.get(num_bits, SIZES[8]):
            codes = random_codes(size, num_bits, 5, 3 * size)
            assert_kernels_agree(kernels, codes, num_bits, 3)
            codes.setflags(write=False)  # as the bytes of a file are
            assert_kernels_agree(kernels, codes, num_bits, 3)
    for width in (4, 8):
        for size in (LONGEST[width] // 8 * 8, 2 * LONGEST[width], 4096):
            assert_kernels_agree(kernels, np.full((2, 3 * size), (1 << width) - 1, np.uint8), width, 3)


def test_words_at_an_odd_place_in_a_file() -> None:
    """As in a file whose header is no multiple of eight bytes; compiled loops read aligned numbers only."""
    codes = random_codes(3, 4, 2, 256)
    stored = np.zeros(codes.size // 2 + 4, np.uint8)
    stored[4:] = units_of_codes(codes, 4).view(np.uint8).reshape(-1)
    stream = CodeStream(stored[4:].view("<u2").reshape(2, -1), 4, False, True)
    expected = stream_of(codes, 4)
    for kernels in filter(None, (SLOW, compiled())):
        with np.errstate(over="ignore"):
            found = kernels.sums(stream, 128)
            assert kernels.spill(stream) == kernels.spill(expected)
        assert found is not None
        assert_same(found[0], sums_of_codes(codes.reshape(2, -1, 128), 4))
        np.testing.assert_array_equal(found[1], np.bincount(codes.reshape(-1), minlength=16))

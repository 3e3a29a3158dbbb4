"""Each layout against something that was written independently: libraries, the formats package, texts of kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.formats import awq, awq_gemv, gptq
from degarble.formats.packing import pack_words
from degarble.repack.interface import Layout, fields_of, layouts, words_of

CASES = [(layout, bits) for layout in layouts().values() for bits in layout.widths]


def codes_for(layout: Layout, bits: int, seed: int, tiles: tuple[int, int] = (2, 3)) -> np.ndarray:
    out, inputs = layout.granule(bits)
    return np.random.default_rng(seed).integers(0, 1 << bits, (out * tiles[0], inputs * tiles[1])).astype(np.uint8)


@pytest.mark.parametrize(("layout", "bits"), CASES, ids=lambda value: getattr(value, "name", value))
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 30), down=st.integers(1, 3), across=st.integers(1, 3))
def test_unpack_undoes_pack(layout: Layout, bits: int, seed: int, down: int, across: int) -> None:
    codes = codes_for(layout, bits, seed, (down, across))
    assert np.array_equal(layout.unpack(layout.pack(codes, bits), bits, codes.shape), codes)


@pytest.mark.parametrize(("layout", "bits"), CASES, ids=lambda value: getattr(value, "name", value))
def test_no_bit_is_wasted_or_shared(layout: Layout, bits: int) -> None:
    """All ones give all ones, and each code's bits are its own: the sum of single codes is the whole."""
    codes = codes_for(layout, bits, 7, (1, 1))
    if layout.name not in ("codes", "q4-0-4x4"):
        assert not np.any(~layout.pack(np.full(codes.shape, (1 << bits) - 1, np.uint8), bits).view(np.uint8))
    blank = layout.pack(np.zeros_like(codes), bits)
    joined, total = blank.copy(), 0
    for place in np.ndindex(*codes.shape):
        single = np.zeros_like(codes)
        single[place] = codes[place]
        own = layout.pack(single, bits) ^ blank
        total += int(np.bitwise_count(own.view(np.uint8)).sum())
        joined ^= own
    assert np.array_equal(joined, layout.pack(codes, bits))
    assert total == int(np.bitwise_count(codes).sum())


@pytest.mark.parametrize("layout", layouts().values(), ids=lambda layout: layout.name)
def test_wrong_sizes_are_refused(layout: Layout) -> None:
    bits = layout.widths[-1]
    out, inputs = layout.granule(bits)
    stored = layout.pack(np.zeros((out, inputs), np.uint8), bits)
    with pytest.raises(ValueError, match=layout.name):
        layout.unpack(stored, bits, (out * 2, inputs))
    with pytest.raises(ValueError, match=layout.name):
        layout.unpack(stored.astype(np.float32), bits, (out, inputs))
    if (out, inputs) != (4, 8):
        with pytest.raises(ValueError, match="multiples"):
            layout.pack(np.zeros((out + 1, inputs + 1), np.uint8), bits)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_gptq_and_compressed_are_those_of_formats(bits: int) -> None:
    codes = codes_for(layouts()["gptq"], bits, bits)
    assert np.array_equal(layouts()["gptq"].pack(codes, bits), gptq.pack(codes, bits))
    assert np.array_equal(layouts()["compressed-tensors"].pack(codes, bits), pack_words(codes, bits))


def test_awq_is_that_of_formats() -> None:
    codes = codes_for(layouts()["awq-gemm"], 4, 1, (3, 16))
    assert np.array_equal(layouts()["awq-gemm"].pack(codes, 4), awq.pack(codes.T))
    assert np.array_equal(layouts()["awq-gemv"].pack(codes, 4), awq_gemv.pack(codes))


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_compressed_is_that_of_compressed_tensors(bits: int) -> None:
    torch = pytest.importorskip("torch")
    helpers = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    codes = codes_for(layouts()["compressed-tensors"], bits, 3)
    signed = torch.from_numpy(codes.astype(np.int16) - (1 << (bits - 1))).to(torch.int8)
    assert np.array_equal(
        helpers.pack_to_int32(signed, bits).numpy(), layouts()["compressed-tensors"].pack(codes, bits)
    )


def test_gguf_halves_are_those_of_gguf() -> None:
    quants = pytest.importorskip("gguf.quants")
    constants = pytest.importorskip("gguf.constants")
    codes = codes_for(layouts()["gguf-halves"], 4, 5)
    stored = layouts()["gguf-halves"].pack(codes, 4)
    one = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    blocks = np.concatenate([np.broadcast_to(one, (codes.size // 32, 2)), stored.reshape(-1, 16)], axis=1)
    values = quants.dequantize(np.ascontiguousarray(blocks), constants.GGMLQuantizationType.Q4_0)
    assert np.array_equal(values.reshape(codes.shape), codes.astype(np.float32) - 8)


@pytest.mark.parametrize("bits", [4, 8])
def test_marlin_is_that_of_the_kernel(bits: int) -> None:
    """One thread after the other, as the CUDA text of gptq_marlin_repack orders its threads and writes its words."""
    codes = codes_for(layouts()["marlin"], bits, 11)
    out, inputs = codes.shape
    words: list[list[int]] = [[0] * (out * 16 * bits // 32) for _ in range(inputs // 16)]
    tile_words = 16 * 64 * bits // 32
    for tile_in in range(inputs // 16):
        for tile_out in range(out // 64):
            for warp in range(4):
                for lane in range(32):
                    column = tile_out * 64 + warp * 16 + lane // 4
                    rows = [tile_in * 16 + lane % 4 * 2 + offset for offset in (0, 1, 8, 9)]
                    values = [int(codes[column + half, row]) for half in (0, 8) for row in rows]
                    at = tile_out * tile_words
                    if bits == 4:
                        order = (0, 2, 4, 6, 1, 3, 5, 7)
                        words[tile_in][at + lane * 4 + warp] = sum(values[order[i]] << 4 * i for i in range(8))
                    else:
                        for half in (0, 1):
                            word = sum(values[4 * half + (0, 2, 1, 3)[i]] << 8 * i for i in range(4))
                            words[tile_in][at + lane * 8 + warp * 2 + half] = word
    assert np.array_equal(np.array(words, np.uint32).view(np.int32), layouts()["marlin"].pack(codes, bits))


@pytest.mark.parametrize(
    ("bits", "drawing"),
    [
        (2, ["ffddbb9977553311eeccaa8866442200"]),
        (
            3,
            [
                "v999777555333111u888666444222000",
                "vjjjhhhfffdddbbbuiiigggeeecccaaa",
                "vtttrrrpppnnnlllusssqqqooommmkkk",
            ],
        ),
        (4, ["77775555333311116666444422220000"]),
        (8, ["33333333222222221111111100000000"]),
    ],
)
def test_exllama_is_as_its_kernels_draw_it(bits: int, drawing: list[str]) -> None:
    """The comments of qdq_*.cuh draw each bit of a word with the digit of its code; u and v are codes 30 and 31."""
    digits = "0123456789abcdefghijklmnopqrstuv"
    layout = layouts()["exllama"]
    count = layout.granule(bits)[1]
    for code in range(count):
        codes = np.zeros((1, count), np.uint8)
        codes[0, code] = (1 << bits) - 1
        words = layout.pack(codes, bits).view(np.uint32)[:, 0]
        for word, line in zip(words, drawing, strict=True):
            assert format(int(word), "032b") == "".join("1" if digit == digits[code] else "0" for digit in line)


@settings(max_examples=50, deadline=None)
@given(word=st.integers(0, (1 << 32) - 1), bits=st.sampled_from([2, 4, 8]))
def test_fields_and_words_undo_each_other(word: int, bits: int) -> None:
    words = np.array([word], np.uint32).view(np.int32)
    fields = fields_of(words, bits)
    assert [int(field) for field in fields[0]] == [word >> shift & ((1 << bits) - 1) for shift in range(0, 32, bits)]
    assert np.array_equal(words_of(fields, bits), words)

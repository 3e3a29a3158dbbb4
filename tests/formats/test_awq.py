"""AWQ GEMM against a loop written from AutoAWQ's `from_linear`, and its headers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import dequantize, group_of, quantize
from degarble.formats.awq import pack, unpack
from degarble.formats.detect import detect
from tests.formats.in_memory import headers, module_of, rewritten
from tests.formats.integer_modules import awq_parts, gptq_parts, random_weight, said

DECLARED = said("awq", 4, 128, format="gemm", symmetric=False)


def packed_by_loop(values: Array) -> Array:
    """Nibble n of a word is column [0, 2, 4, 6, 1, 3, 5, 7][n] of its eight."""
    rows, columns = values.shape
    packed = np.zeros((rows, columns // 8), np.int64)
    for word in range(columns // 8):
        for nibble, column in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
            packed[:, word] |= values[:, word * 8 + column].astype(np.int64) << nibble * 4
    return packed.astype(np.uint32).view(np.int32)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_pack_and_unpack(rows: int, words: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 16, (rows, words * 8), np.uint8)
    assert np.array_equal(pack(values), packed_by_loop(values))
    assert np.array_equal(unpack(pack(values)), values)


def test_the_order_as_engines_undo_it() -> None:
    """The published reverse order, [0, 4, 1, 5, 2, 6, 3, 7], applied to nibbles in natural order."""
    values = np.arange(8, dtype=np.uint8)[None]
    word = int(pack(values)[0, 0]) % 2**32
    nibbles = [word >> shift & 15 for shift in range(0, 32, 4)]
    assert nibbles == [0, 2, 4, 6, 1, 3, 5, 7]
    assert [nibbles[place] for place in [0, 4, 1, 5, 2, 6, 3, 7]] == list(range(8))


def test_columns_that_fill_no_word_are_refused() -> None:
    with pytest.raises(ValueError, match="8 columns"):
        pack(np.zeros((1, 12), np.uint8))


@pytest.mark.parametrize(("out", "columns", "group"), [(64, 96, 32), (40, 80, 32), (32, 32, -1), (8, 64, 128)])
def test_stored_module(out: int, columns: int, group: int) -> None:
    scheme = said("awq", 4, group, format="gemm", symmetric=False)
    module = module_of(awq_parts(out, columns, group), scheme)
    form = module.form
    assert (form.format, form.shape, form.missing, form.contradictions) == ("awq", (out, columns), (), ())
    size = group if group > 0 else columns
    codes, scales, zeros = quantize(random_weight(out, columns), 4, size, symmetric=False)
    assert np.array_equal(module.codes(), codes)
    assert np.array_equal(module.dequantize(), dequantize(codes, scales, zeros, group_of(columns, size)))
    again = rewritten(module, codes=codes, scales=module.scales(), zeros=zeros)
    assert np.array_equal(again.dequantize(), module.dequantize())
    with pytest.raises(ValueError, match="g_idx"):
        module.replace(group_index=np.zeros(columns))


def test_symmetric_without_zero_points() -> None:
    """No zero points are needed then; without that declaration they are missing."""
    parts = awq_parts(16, 64)
    parts.pop("qzeros")
    module = module_of(parts, said("awq", 4, 32, symmetric=True))
    zeros = module.zeros()
    assert not module.form.missing
    assert zeros is not None and (zeros == 8).all() and zeros.shape == (16, 2)
    assert module_of(parts, said("awq", 4, 32, symmetric=False)).form.missing == ("zero_point",)


HEALTHY = headers(qweight=("I32", (512, 32)), qzeros=("I32", (4, 32)), scales=("F16", (4, 256)))


@pytest.mark.parametrize("wrong", [2, 3, 8])
def test_config_bits_unlike_the_stored(wrong: int) -> None:
    (found,) = detect(HEALTHY, said("awq", wrong, 128), None)[1].contradictions
    assert (found.about, found.expected, found.found) == ("num_bits", str(wrong), "4")


@pytest.mark.parametrize("wrong", [32, 64, -1])
def test_config_group_size_unlike_the_stored(wrong: int) -> None:
    (found,) = detect(HEALTHY, said("awq", 4, wrong), None)[1].contradictions
    assert (found.about, found.found) == ("group_size", "128")


@pytest.mark.parametrize("shape", [(4, 256), (1, 256), (32, 4), (256, 4), (4,)])
def test_zero_points_in_another_form(shape: tuple[int, ...]) -> None:
    form = detect({**HEALTHY, **headers(qzeros=("I32", shape))}, DECLARED, None)[1]
    assert (form.format, [item.about for item in form.contradictions]) == ("awq", ["zero_point"])


@pytest.mark.parametrize("gone", ["scales", "qzeros"])
def test_a_part_that_is_missing(gone: str) -> None:
    parts = {suffix: info for suffix, info in HEALTHY.items() if suffix != gone}
    form = detect(parts, DECLARED, None)[1]
    assert (form.format, form.missing) == ("awq", ({"scales": "scale", "qzeros": "zero_point"}[gone],))
    assert (form.shape, form.contradictions) == ((256, 512), ())


def test_payload_of_another_rank() -> None:
    form = detect({**HEALTHY, **headers(qweight=("I32", (512,)))}, DECLARED, None)[1]
    assert (form.format, form.shape, [item.about for item in form.contradictions]) == ("awq", None, ["shape"])


@pytest.mark.parametrize("size", [64, 128, 256])
def test_gptq_data_under_an_awq_config_and_the_reverse(size: int) -> None:
    """Square matrices have the same number of words either way; scales and index tell."""
    for index in (True, False):
        form = module_of(gptq_parts(size, size, index=index), said("awq", 4, 32)).form
        assert (form.format, [item.about for item in form.contradictions]) == ("gptq", ["layout"])
        assert (form.contradictions[0].expected, form.contradictions[0].found) == ("awq", "gptq")
    form = module_of(awq_parts(size, size), said("gptq", 4, 32)).form
    assert (form.format, [item.about for item in form.contradictions]) == ("awq", ["layout"])
    without_scales = {suffix: array for suffix, array in awq_parts(size, size).items() if suffix != "scales"}
    assert module_of(without_scales, said("gptq", 4, 32)).form.format == "awq"

"""AWQ GEMV: natural order, padded companions whose zeros are legal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import dequantize, group_of, quantize
from degarble.formats.awq_gemv import pack, pad, padded_width, unpack
from degarble.formats.detect import detect
from tests.formats.in_memory import headers, module_of, rewritten
from tests.formats.integer_modules import gemv_parts, random_weight, said


def packed_by_loop(values: Array) -> Array:
    """Nibble n of a word is its n-th code."""
    rows, columns = values.shape
    packed = np.zeros((rows, columns // 8), np.int64)
    for column in range(columns):
        packed[:, column // 8] |= values[:, column].astype(np.int64) << column % 8 * 4
    return packed.astype(np.uint32).view(np.int32)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_pack_and_unpack(rows: int, words: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 16, (rows, words * 8), np.uint8)
    assert np.array_equal(pack(values), packed_by_loop(values))
    assert np.array_equal(unpack(pack(values)), values)


@pytest.mark.parametrize(
    ("columns", "group", "width"),
    [(4096, 128, 4), (4096, 64, 8), (4096, 32, 16), (11008, 128, 11), (11008, 64, 22), (128, 128, 1), (64, 32, 4)],
)
def test_padded_width(columns: int, group: int, width: int) -> None:
    """Values of AutoAWQ's formula: groups in words of eight, rounded up to 1, 2 or 4 words."""
    assert padded_width(columns, group) == width


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="8 columns"):
        pack(np.zeros((1, 12), np.uint8))
    with pytest.raises(ValueError, match="do not fit"):
        pad(np.zeros((1, 9)), 8)


@pytest.mark.parametrize(("out", "columns", "group"), [(48, 128, 32), (16, 256, 64), (24, 384, 128), (8, 128, 128)])
@pytest.mark.parametrize("label", ["gemv", None])
def test_stored_module(out: int, columns: int, group: int, label: str | None) -> None:
    """Values without the padding; the padding is zero and stays zero."""
    scheme = said("awq", 4, group, format=label, symmetric=False)
    module = module_of(gemv_parts(out, columns, group), scheme)
    form = module.form
    assert (form.format, form.shape, form.missing, form.contradictions) == ("awq_gemv", (out, columns), (), ())
    codes, scales, zeros = quantize(random_weight(out, columns), 4, group, symmetric=False)
    assert np.array_equal(module.codes(), codes)
    assert module.scales().shape == (out, columns // group)
    assert np.array_equal(np.asarray(module.zeros()), zeros)
    assert np.array_equal(module.dequantize(), dequantize(codes, scales, zeros, group_of(columns, group)))
    again = rewritten(module, codes=codes, scales=module.scales(), zeros=zeros)
    assert np.array_equal(again.dequantize(), module.dequantize())
    assert not again.array("scale")[:, columns // group :].any()


HEALTHY = headers(qweight=("I32", (256, 512)), qzeros=("I32", (256, 4)), scales=("F16", (256, 32)))
DECLARED = said("awq", 4, 128, format="gemv", symmetric=False)


def test_headers() -> None:
    form = detect(HEALTHY, DECLARED, None)[1]
    assert (form.format, form.shape, form.contradictions) == ("awq_gemv", (256, 4096), ())
    bits = detect(HEALTHY, said("awq", 8, 128, format="gemv"), None)[1]
    assert [item.about for item in bits.contradictions] == ["num_bits"]
    (group,) = detect(HEALTHY, said("awq", 4, 64, format="gemv"), None)[1].contradictions
    assert (group.about, group.found) == ("group_size", "128")
    gptq = detect(HEALTHY, said("gptq", 4, 128), None)[1]
    assert (gptq.format, [item.about for item in gptq.contradictions]) == ("awq_gemv", ["layout"])
    unpacked = detect({**HEALTHY, **headers(qzeros=("I32", (256, 32)))}, DECLARED, None)[1]
    assert [item.about for item in unpacked.contradictions] == ["zero_point"]
    scales = detect({**HEALTHY, **headers(scales=("F16", (256,)))}, DECLARED, None)[1]
    assert [(item.about, item.role) for item in scales.contradictions] == [("shape", "scale")]
    flat = detect({**HEALTHY, **headers(qweight=("I32", (256,)))}, DECLARED, None)[1]
    assert (flat.format, flat.shape) == ("awq_gemv", None)


@pytest.mark.parametrize("gone", ["scales", "qzeros"])
def test_a_part_that_is_missing(gone: str) -> None:
    parts = {suffix: info for suffix, info in HEALTHY.items() if suffix != gone}
    form = detect(parts, DECLARED, None)[1]
    assert (form.format, form.missing) == ("awq_gemv", ({"scales": "scale", "qzeros": "zero_point"}[gone],))
    assert form.contradictions == ()


def test_symmetric_without_zero_points() -> None:
    parts = gemv_parts(16, 128)
    parts.pop("qzeros")
    module = module_of(parts, said("awq", 4, 32, symmetric=True, format="gemv"))
    zeros = module.zeros()
    assert zeros is not None and zeros.shape == (16, 4) and (zeros == 8).all()
    with pytest.raises(ValueError, match="zero_point"):
        module.replace(zeros=zeros, group_index=np.zeros(128))

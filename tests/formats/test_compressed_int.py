"""int-quantized: bytes under `weight`, claimed by the scale's name only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.formats.compressed_int import quantize
from degarble.formats.detect import detect
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, module_of, rewritten
from tests.formats.integer_modules import random_weight, said

CT = "compressed-tensors"
DECLARED = said(CT, 8, -1, format="int-quantized", symmetric=True)


@given(st.integers(2, 8), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_every_weight_is_within_half_a_step(bits: int, columns: int, seed: int) -> None:
    weight = random_weight(4, columns, seed)
    codes, scales = quantize(weight, bits)
    assert codes.dtype == np.int8
    assert np.abs(codes * scales - weight).max() <= scales.max() * 0.5001
    assert quantize(np.zeros((2, 4)))[1].tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("flat", [True, False])
def test_stored_module(flat: bool) -> None:
    """One scale a row, with or without a last axis of one."""
    codes, scales = quantize(random_weight(12, 40))
    parts = {"weight": codes, "weight_scale": scales[:, 0] if flat else scales}
    module = module_of(parts, said("modelopt", 8, -1) if flat else DECLARED, (12, 40))
    form = module.form
    assert (form.format, form.shape, form.missing, form.contradictions) == ("compressed_int", (12, 40), (), ())
    assert np.array_equal(module.codes(), codes)
    assert module.zeros() is None
    assert np.array_equal(module.dequantize(), codes.astype(np.float32) * scales)
    again = rewritten(module, codes=-codes, scales=scales * 2)
    assert np.array_equal(again.dequantize(), codes.astype(np.float32) * scales * -2)


def test_groups_and_zero_points() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, (6, 64)).astype(np.int8)
    scales = rng.random((6, 2)).astype(np.float32) + 0.5
    zeros = rng.integers(-20, 20, (6, 2)).astype(np.int8)
    parts = {"weight": codes, "weight_scale": scales, "weight_zero_point": zeros}
    module = module_of(parts, said(CT, 8, 32, symmetric=False))
    assert not module.form.contradictions
    spread = np.repeat(np.arange(2), 32)
    expected = (codes.astype(np.int32) - zeros[:, spread]).astype(np.float32) * scales[:, spread]
    assert np.array_equal(module.dequantize(), expected)
    stored = module.zeros()
    assert stored is not None
    assert np.array_equal(rewritten(module, zeros=stored).dequantize(), expected)
    with pytest.raises(ValueError, match="g_idx"):
        module.replace(group_index=spread)


def test_one_scale_for_the_tensor() -> None:
    codes = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    scheme = Scheme(method=CT, type="int", num_bits=8, strategy="tensor", symmetric=True)
    module = module_of({"weight": codes, "weight_scale": np.array([0.5], np.float32)}, scheme)
    assert not module.form.contradictions
    assert np.array_equal(module.dequantize(), codes / np.float32(2))


HEALTHY = headers(weight=("I8", (256, 512)), weight_scale=("BF16", (256, 1)))


def test_headers() -> None:
    assert detect(HEALTHY, DECLARED, None)[1].contradictions == ()
    asymmetric = said(CT, 8, -1, symmetric=False, activations="static")
    assert detect(HEALTHY, asymmetric, None)[1].missing == ("zero_point", "input_scale")
    groups = detect(HEALTHY, said(CT, 8, 128), None)[1]
    assert [item.about for item in groups.contradictions] == ["group_size"]
    scale = detect({**HEALTHY, **headers(weight_scale=("BF16", (512, 1)))}, DECLARED, None)[1]
    assert [(item.about, item.role) for item in scale.contradictions] == [("shape", "scale")]
    zeros = {**HEALTHY, **headers(weight_zero_point=("I32", (32, 1)))}
    packed = detect(zeros, said(CT, 8, -1, symmetric=False), None)[1]
    assert [item.about for item in packed.contradictions] == ["zero_point"]
    label = detect(HEALTHY, said(CT, 8, -1, format="pack-quantized"), None)[1]
    assert [(item.about, item.found) for item in label.contradictions] == [("layout", "int-quantized")]
    floats = detect(HEALTHY, Scheme(method=CT, type="float", num_bits=8, strategy="channel"), None)[1]
    assert [item.about for item in floats.contradictions] == ["dtype"]
    flat = detect({**HEALTHY, **headers(weight=("I8", (256,)))}, DECLARED, None)[1]
    assert (flat.format, flat.shape) == ("compressed_int", None)


def test_narrow_codes_in_bytes() -> None:
    """A 4-bit scheme in bytes: what the config says is all that tells."""
    form = detect(HEALTHY, said(CT, 4, -1, format="int-quantized"), None)[1]
    assert form.scheme is not None and form.scheme.num_bits == 4
    assert not form.contradictions


def test_who_claims() -> None:
    alone = {"weight": HEALTHY["weight"]}
    assert detect(alone, DECLARED, None)[1].missing == ("scale",)
    assert detect(alone, None, None)[1].format == "unknown"
    assert detect({**alone, **headers(SCB=("F32", (256,)))}, DECLARED, None)[1].format == "bitsandbytes_int8"
    nvfp4 = {**alone, **headers(weight_scale=("F8_E4M3", (256, 64)), weight_scale_2=("F32", ()))}
    assert detect(nvfp4, None, None)[1].format != "compressed_int"

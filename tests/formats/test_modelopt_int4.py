"""ModelOpt INT4: two rows to a byte, two's complement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.formats.affine import group_of
from degarble.formats.detect import detect
from degarble.formats.modelopt_int4 import pack, quantize, unpack
from tests.formats.in_memory import headers, module_of, rewritten
from tests.formats.integer_modules import random_weight, said

DECLARED = said("modelopt", 4, 128, symmetric=True)


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_pack_and_unpack(pairs: int, columns: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(-8, 8, (pairs * 2, columns)).astype(np.int8)
    packed = pack(codes)
    assert packed.shape == (pairs, columns) and packed.dtype == np.uint8
    by_loop = [
        [int(low) % 16 | int(high) % 16 << 4 for low, high in zip(codes[r], codes[r + 1], strict=True)]
        for r in range(0, pairs * 2, 2)
    ]
    assert packed.tolist() == by_loop
    assert np.array_equal(unpack(packed), codes)


def test_stacked_experts() -> None:
    codes = np.random.default_rng(3).integers(-8, 8, (3, 4, 5)).astype(np.int8)
    assert np.array_equal(unpack(pack(codes)), codes)
    assert np.array_equal(pack(codes)[1], pack(codes[1]))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="two rows"):
        pack(np.zeros((3, 4), np.int8))
    with pytest.raises(ValueError, match=r"-8\.\.7"):
        pack(np.full((2, 2), 8))


@pytest.mark.parametrize(("out", "columns", "group"), [(16, 256, 128), (2, 100, 32), (6, 64, 128)])
def test_stored_module(out: int, columns: int, group: int) -> None:
    weight = random_weight(out, columns)
    codes, scales = quantize(weight, group)
    smoothing = np.linspace(0.5, 2, columns).astype(np.float32)
    parts = {"weight": pack(codes), "weight_scale": scales, "pre_quant_scale": smoothing}
    module = module_of(parts, said("modelopt", 4, group, symmetric=True), (out, columns))
    form = module.form
    assert (form.format, form.shape, form.missing, form.contradictions) == ("modelopt_int4", (out, columns), (), ())
    spread = scales[:, group_of(columns, group)]
    assert np.array_equal(module.dequantize(), codes.astype(np.float32) * spread)
    assert np.abs((module.dequantize() - weight) / spread).max() <= 0.5001
    again = rewritten(module, codes=-np.maximum(codes, -7), scales=scales * 2)
    assert np.array_equal(again.codes(), -np.maximum(codes, -7))
    with pytest.raises(ValueError, match="neither zero points"):
        module.replace(zeros=np.zeros(1))


HEALTHY = headers(weight=("U8", (128, 512)), weight_scale=("F32", (256, 4)), pre_quant_scale=("BF16", (512,)))


def test_headers() -> None:
    assert detect(HEALTHY, DECLARED, None)[1].contradictions == ()
    assert [item.about for item in detect(HEALTHY, said("modelopt", 8, 128), None)[1].contradictions] == ["num_bits"]
    assert [item.about for item in detect(HEALTHY, said("modelopt", 4, 64), None)[1].contradictions] == ["group_size"]
    assert [item.about for item in detect(HEALTHY, said("gptq", 4, 128), None)[1].contradictions] == ["layout"]
    smooth = detect({**HEALTHY, **headers(pre_quant_scale=("BF16", (256,)))}, DECLARED, None)[1]
    assert [(item.about, item.role) for item in smooth.contradictions] == [("shape", "pre_quant_scale")]
    scale = detect({**HEALTHY, **headers(weight_scale=("F32", (128, 4)))}, DECLARED, None)[1]
    assert [(item.about, item.role) for item in scale.contradictions] == [("shape", "scale")]
    flat = detect({**HEALTHY, **headers(weight=("U8", (128,)))}, DECLARED, None)[1]
    assert (flat.format, flat.shape) == ("modelopt_int4", None)
    lost = detect({"weight": HEALTHY["weight"]}, DECLARED, None)[1]
    assert (lost.format, lost.missing) == ("modelopt_int4", ("scale",))


def test_who_claims() -> None:
    """Bytes of others, and W4A8_AWQ, whose second scale nobody has proven, stay theirs or unknown."""
    column = headers(weight=("U8", (65536, 1)), weight__absmax=("F32", (2048,)))
    assert detect(column, None, None)[1].format == "bitsandbytes_4bit"
    nvfp4 = headers(weight=("U8", (256, 256)), weight_scale=("F8_E4M3", (256, 32)), weight_scale_2=("F32", ()))
    assert detect(nvfp4, None, None)[1].format == "modelopt_nvfp4"
    both = {**HEALTHY, **headers(weight_scale_2=("F32", ()))}
    assert detect(both, said("modelopt", 4, 128, activations="static"), None)[1].format == "unknown"

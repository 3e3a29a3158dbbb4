"""MXFP4 matrices: values, and two oracles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.formats import e2m1, e8m0, fp4_matrix, mxfp4
from tests.formats.in_memory import module_of, rewritten

RNG = np.random.default_rng(19)


def test_quantised_values_are_near() -> None:
    weight = RNG.normal(0, 0.02, (8, 96)).astype(np.float32)
    weight[2, :32] = 0
    codes, exponents = mxfp4.quantize(weight)
    back = fp4_matrix.dequantize(codes, e8m0.decode(exponents), 32)
    assert np.abs(back - weight).max() <= np.abs(weight).max() / 4
    assert not back[2, :32].any()


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_replace_reads_back(seed: int, deepseek: bool) -> None:
    rng = np.random.default_rng(seed)
    codes, exponents = rng.integers(0, 16, (6, 64), dtype=np.uint8), rng.integers(90, 140, (6, 2), dtype=np.uint8)
    payload = e2m1.pack(codes)
    if deepseek:
        scales = exponents.view(ml_dtypes.float8_e8m0fnu)
        module = module_of({"weight": payload.view(np.int8), "weight_scale_inv": scales})
    else:
        module = module_of({"weight_packed": payload, "weight_scale": exponents})
    assert np.array_equal(module.codes(), codes) and module.form.contradictions == ()
    again = rewritten(module, codes=codes[::-1], scales=module.scales()[::-1])
    np.testing.assert_array_equal(again.dequantize(), module.dequantize()[::-1])


@pytest.mark.engine
def test_transformers_agrees_on_deepseek_experts() -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("transformers.integrations.finegrained_fp8").Fp8Dequantize(None)
    codes, exponents = mxfp4.quantize(RNG.normal(0, 0.02, (8, 96)).astype(np.float32))
    packed = torch.from_numpy(e2m1.pack(codes).view(np.int8))
    back = theirs._dequantize_one(packed, torch.from_numpy(exponents), torch.float32).numpy()
    np.testing.assert_array_equal(back, fp4_matrix.dequantize(codes, e8m0.decode(exponents), 32))


@pytest.mark.engine
def test_compressed_tensors_agrees() -> None:
    torch = pytest.importorskip("torch")
    compressor = pytest.importorskip("compressed_tensors.compressors.mxfp4.base").MXFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    args = QuantizationArgs(num_bits=4, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8)
    codes, exponents = mxfp4.quantize(RNG.normal(0, 0.02, (8, 96)).astype(np.float32))
    state = {
        "weight_packed": torch.from_numpy(e2m1.pack(codes)),
        "weight_scale": torch.from_numpy(exponents),
    }
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    theirs = compressor.decompress(state, scheme)["weight"].float().numpy()
    np.testing.assert_array_equal(fp4_matrix.dequantize(codes, e8m0.decode(exponents), 32), theirs)


def test_quark_and_modelopt_names() -> None:
    codes, exponents = mxfp4.quantize(RNG.normal(0, 0.02, (8, 96)).astype(np.float32))
    module = module_of({"weight": e2m1.pack(codes), "weight_scale": exponents})
    assert (module.form.format, module.form.contradictions) == ("quark_mxfp4", ())
    np.testing.assert_array_equal(module.dequantize(), fp4_matrix.dequantize(codes, e8m0.decode(exponents), 32))

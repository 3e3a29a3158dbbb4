"""MXFP8: headers, values, and two oracles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from degarble.formats import e8m0, mxfp8
from degarble.formats.detect import detect
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, module_of, rewritten

RNG = np.random.default_rng(13)
CT = Scheme(method="compressed-tensors", type="float", num_bits=8, strategy="group", group_size=32)


@pytest.mark.parametrize("suffix", ["weight_scale", "weight_scale_inv"])
@pytest.mark.parametrize("dtype", [np.uint8, ml_dtypes.float8_e8m0fnu])
def test_values_and_replace(suffix: str, dtype: type) -> None:
    weight = RNG.normal(0, 0.02, (16, 96)).astype(np.float32)
    codes, exponents = mxfp8.quantize(weight)
    module = module_of({"weight": codes.view(ml_dtypes.float8_e4m3fn), suffix: exponents.view(dtype)})
    assert (module.form.format, module.form.missing, module.form.contradictions) == ("mxfp8", (), ())
    assert module.form.scheme is not None and module.form.scheme.group_size == 32
    assert np.abs(module.dequantize() - weight).max() <= np.abs(weight).max() * 2**-3
    again = rewritten(module, codes=codes[::-1], scales=module.scales()[::-1] * 4)
    np.testing.assert_array_equal(again.dequantize(), module.dequantize()[::-1] * 4)
    index = module.group_index()
    assert index is not None and index[[0, 31, 32, 95]].tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("scale", "declared", "about"),
    [
        (("U8", (16, 3)), CT, []),
        (("U8", (16, 6)), None, ["group_size"]),
        (("U8", (16, 2)), None, ["group_size"]),
        (("U8", (3, 16)), CT, ["shape"]),
        (("U8", (16, 3)), Scheme(method="fp8", strategy="block", block_shape=(128, 128)), ["block_grid"]),
        (("U8", (16, 3)), Scheme(method="fp8", strategy="block", block_shape=(1, 32)), []),
    ],
)
def test_headers(scale: tuple[str, tuple[int, ...]], declared: Scheme | None, about: list[str]) -> None:
    _, form = detect(headers(weight=("F8_E4M3", (16, 96)), weight_scale=scale), declared, None)
    assert form.format == "mxfp8"
    assert [item.about for item in form.contradictions] == about


def test_missing_scale_is_named() -> None:
    fmt, form = detect(headers(weight=("F8_E4M3", (16, 96))), CT, None)
    assert (form.format, form.missing, fmt.suffix_of("scale")) == ("mxfp8", ("scale",), "weight_scale")


@pytest.mark.engine
def test_compressed_tensors_agrees() -> None:
    torch = pytest.importorskip("torch")
    compressor = pytest.importorskip("compressed_tensors.compressors.mxfp8.base").MXFP8QuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    args = QuantizationArgs(num_bits=8, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8)
    codes, exponents = mxfp8.quantize(RNG.normal(0, 0.02, (16, 96)).astype(np.float32))
    state = {
        "weight": torch.from_numpy(codes).view(torch.float8_e4m3fn),
        "weight_scale": torch.from_numpy(exponents),
    }
    theirs = compressor.decompress(state, QuantizationScheme(targets=["Linear"], weights=args))["weight"]
    ours = mxfp8.dequantize(codes, e8m0.decode(exponents))
    np.testing.assert_array_equal(ours.astype(ml_dtypes.bfloat16).astype(np.float32), theirs.float().numpy())


@pytest.mark.engine
def test_transformers_agrees() -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("transformers.integrations.finegrained_fp8").Fp8Dequantize(None)
    codes, exponents = mxfp8.quantize(RNG.normal(0, 0.02, (16, 96)).astype(np.float32))
    weight = torch.from_numpy(codes).view(torch.float8_e4m3fn)
    back = theirs._dequantize_one(weight, torch.from_numpy(exponents), torch.float32).numpy()
    np.testing.assert_array_equal(back, mxfp8.dequantize(codes, e8m0.decode(exponents)))

"""FP8 per tensor and per channel: headers, values, and compressed-tensors as oracle."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.formats import fp8
from degarble.formats.detect import detect
from degarble.formats.interface import StoredModule
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, module_of, rewritten

CT = Scheme(method="compressed-tensors", type="float", num_bits=8, strategy="channel")
TENSOR = Scheme(method="compressed-tensors", type="float", num_bits=8, strategy="tensor", activations="static")
RNG = np.random.default_rng(7)


def stored(weight: np.ndarray, strategy: str, declared: Scheme | None = None, dtype: str = "F8_E4M3") -> StoredModule:
    codes, scales = fp8.quantize(weight, strategy=strategy, dtype=dtype)
    kind = ml_dtypes.float8_e4m3fn if dtype == "F8_E4M3" else ml_dtypes.float8_e5m2
    return module_of({"weight": codes.view(kind), "weight_scale": scales}, declared)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2"])
@pytest.mark.parametrize("strategy", ["tensor", "channel"])
def test_quantised_values_are_near(strategy: str, dtype: str) -> None:
    weight = RNG.normal(0, 0.02, (24, 40)).astype(np.float32)
    module = stored(weight, strategy, dtype=dtype)
    assert module.form.scheme is not None and module.form.scheme.strategy == strategy
    step = 2**-4 if dtype == "F8_E4M3" else 2**-3
    assert np.abs(module.dequantize() - weight).max() <= np.abs(weight).max() * step
    assert module.group_index() is None and module.zeros() is None


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_replace_reads_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = stored(rng.normal(size=(6, 10)).astype(np.float32), "channel")
    codes = rng.integers(0, 256, (6, 10), dtype=np.uint8)
    scales = rng.uniform(0.001, 2, (6, 1)).astype(np.float32)
    again = rewritten(module, codes=codes, scales=scales)
    assert np.array_equal(again.codes(), codes)
    assert np.array_equal(again.scales(), scales)
    np.testing.assert_array_equal(again.dequantize(), fp8.dequantize(codes, scales))


def test_experts() -> None:
    codes = RNG.integers(0, 120, (3, 4, 8), dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    for shape in ((3,), (3, 1, 1), (3, 4), (3, 4, 1)):
        scale = RNG.uniform(1, 2, shape).astype(np.float32)
        module = module_of({"weight": codes, "weight_scale": scale})
        assert module.form.contradictions == () and module.form.shape == (3, 4, 8)
        wide = scale.reshape(3, -1, 1)
        np.testing.assert_array_equal(module.dequantize(), codes.astype(np.float32) * wide)


def test_an_old_zero_point_is_subtracted() -> None:
    codes = np.full((2, 4), 56, np.uint8).view(ml_dtypes.float8_e4m3fn)  # 1.0
    zero = np.full((2, 1), 48, np.uint8).view(ml_dtypes.float8_e4m3fn)  # 0.5
    module = module_of({"weight": codes, "weight_scale": np.full((2, 1), 2, np.float32), "weight_zero_point": zero})
    assert module.dequantize().tolist() == [[1.0] * 4] * 2


@pytest.mark.parametrize(
    ("scale", "declared", "about"),
    [
        (("F32", (576, 1)), CT, []),
        (("F32", (1,)), CT, ["group_size"]),
        (("F32", (576, 1)), TENSOR, ["group_size"]),
        (("F32", (1, 576)), CT, ["shape"]),
        (("F32", (320,)), CT, ["shape"]),
        (("I32", (576, 1)), CT, ["dtype"]),
        (("F32", (576, 1)), Scheme(method="gptq", num_bits=4), ["layout", "num_bits"]),
        (("F32", (576, 1)), Scheme(method="compressed-tensors", type="int", num_bits=8), ["dtype"]),
        (("F32", (0,)), CT, ["shape"]),
    ],
)
def test_headers_that_contradict(scale: tuple[str, tuple[int, ...]], declared: Scheme, about: list[str]) -> None:
    _, form = detect(headers(weight=("F8_E4M3", (576, 320)), weight_scale=scale), declared, None)
    assert form.format == "fp8"
    assert [item.about for item in form.contradictions] == about


def test_a_vector_is_no_weight() -> None:
    _, form = detect(headers(weight=("F8_E4M3", (576,)), weight_scale=("F32", (1,))), CT, None)
    assert [item.about for item in form.contradictions] == ["shape"]


def test_static_activations_need_input_scales() -> None:
    parts = headers(weight=("F8_E4M3", (8, 8)), weight_scale=("F32", (1,)))
    assert detect(parts, TENSOR, None)[1].missing == ("input_scale",)
    assert detect(parts, CT, None)[1].missing == ()
    whole = {**parts, **headers(input_scale=("F32", (1,)))}
    assert detect(whole, TENSOR, None)[1].missing == ()


def test_a_single_row_is_both_tensor_and_channel() -> None:
    parts = headers(weight=("F8_E4M3", (1, 8)), weight_scale=("F32", (1, 1)))
    assert detect(parts, CT, None)[1].contradictions == ()


def test_what_cannot_be_written_is_refused() -> None:
    module = stored(np.ones((2, 4), np.float32), "channel")
    with pytest.raises(ValueError, match="stores no input_scale"):
        module.replace(input_scale=np.ones(1))
    with pytest.raises(ValueError, match="does not fit"):
        module.replace(scales=np.ones((3, 1), np.float32))
    half = module_of({"weight": np.ones((2, 4), ml_dtypes.float8_e4m3fn), "weight_scale": np.ones((2, 1), np.float16)})
    with pytest.raises(ValueError, match="too large"):
        half.replace(scales=np.full((2, 1), 1e9, np.float32))
    assert np.isnan(rewritten(half, scales=np.full((2, 1), np.nan, np.float32)).dequantize()).all()


def test_a_misfit_scale_is_no_value() -> None:
    module = module_of({"weight": np.ones((4, 6), ml_dtypes.float8_e4m3fn), "weight_scale": np.ones(5, np.float32)})
    with pytest.raises(ValueError, match="belongs to no tensor or row"):
        module.dequantize()


@pytest.mark.engine
@pytest.mark.parametrize("strategy", ["tensor", "channel"])
def test_compressed_tensors_agrees(strategy: str) -> None:
    torch = pytest.importorskip("torch")
    forward = pytest.importorskip("compressed_tensors.quantization.lifecycle.forward")
    from compressed_tensors.quantization import QuantizationArgs

    weight = RNG.normal(0, 0.02, (24, 40)).astype(np.float32)
    codes, scales = fp8.quantize(weight, strategy=strategy)
    args = QuantizationArgs(num_bits=8, type="float", strategy=strategy, symmetric=True)
    scale = torch.from_numpy(scales.reshape(-1) if strategy == "tensor" else scales)
    theirs = forward.quantize(torch.from_numpy(weight), scale, None, args, dtype=torch.float8_e4m3fn)
    assert np.array_equal(theirs.view(torch.uint8).numpy(), codes)
    back = forward.dequantize(theirs, scale, args=args, dtype=torch.float32).numpy()
    np.testing.assert_array_equal(back, fp8.dequantize(codes, scales))

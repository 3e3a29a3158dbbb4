"""NVFP4 values under both names, and compressed-tensors as oracle."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.formats import e2m1, fp4_matrix, nvfp4
from degarble.formats.interface import StoredModule
from tests.formats.in_memory import module_of, rewritten

RNG = np.random.default_rng(17)


def compressed(weight: np.ndarray) -> StoredModule:
    codes, scales, divisor = nvfp4.quantize(weight)
    return module_of(
        {
            "weight_packed": e2m1.pack(codes),
            "weight_scale": scales.astype(ml_dtypes.float8_e4m3fn),
            "weight_global_scale": np.array([divisor], np.float32),
        }
    )


def modelopt(weight: np.ndarray) -> StoredModule:
    codes, scales, divisor = nvfp4.quantize(weight)
    return module_of(
        {
            "weight": e2m1.pack(codes),
            "weight_scale": scales.astype(ml_dtypes.float8_e4m3fn),
            "weight_scale_2": np.array(1 / divisor, np.float32),
        }
    )


@pytest.mark.parametrize("store", [compressed, modelopt])
def test_quantised_values_are_near(store: Any) -> None:
    weight = RNG.normal(0, 0.02, (32, 64)).astype(np.float32)
    weight[3] = 0
    module = store(weight)
    assert np.abs(module.dequantize() - weight).max() <= np.abs(weight).max() / 6 * 1.1
    assert not module.dequantize()[3].any()
    assert module.scales().shape == (32, 4) and module.group_index().tolist()[15:17] == [0, 1]


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([compressed, modelopt]))
def test_replace_reads_back(seed: int, store: Any) -> None:
    rng = np.random.default_rng(seed)
    module = store(rng.normal(0, rng.uniform(1e-4, 10), (8, 32)).astype(np.float32))
    codes, scales = rng.integers(0, 16, (8, 32), dtype=np.uint8), module.scales()[::-1]
    again = rewritten(module, codes=codes, scales=scales)
    assert np.array_equal(again.codes(), codes)
    np.testing.assert_array_equal(again.scales(), scales)
    doubled = rewritten(module, global_scale=module.array("global_scale") * 2)
    np.testing.assert_array_equal(doubled.scales(), module.scales() * (0.5 if store is compressed else 2))


def test_one_global_scale_per_expert() -> None:
    module = module_of(
        {
            "weight": np.full((2, 4, 8), 0x22, np.uint8),
            "weight_scale": np.ones((2, 4, 1), ml_dtypes.float8_e4m3fn),
            "weight_scale_2": np.array([1, 3], np.float32),
        }
    )
    assert module.form.contradictions == ()
    assert module.dequantize()[:, 0, 0].tolist() == [1, 3]


def test_groups_that_do_not_cover_the_row_have_no_values() -> None:
    module = module_of(
        {
            "weight": np.zeros((4, 16), np.uint8),
            "weight_scale": np.ones((4, 3), ml_dtypes.float8_e4m3fn),
            "weight_scale_2": np.array(1, np.float32),
        }
    )
    with pytest.raises(ValueError, match="3 scales cannot cover 32 inputs"):
        module.dequantize()


@pytest.mark.engine
def test_compressed_tensors_agrees() -> None:
    torch = pytest.importorskip("torch")
    compressor = pytest.importorskip("compressed_tensors.compressors.nvfp4.base").NVFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    weight = RNG.normal(0, 0.02, (32, 64)).astype(np.float32)
    codes, scales, divisor = nvfp4.quantize(weight)
    state = {
        "weight": torch.from_numpy(weight),
        "weight_scale": torch.from_numpy(scales),
        "weight_global_scale": torch.tensor([divisor], dtype=torch.float32),
    }
    theirs = compressor.compress(state, scheme)
    assert np.array_equal(theirs["weight_packed"].numpy(), e2m1.pack(codes))
    back = compressor.decompress(theirs, scheme)["weight"].float().numpy()
    ours = fp4_matrix.dequantize(codes, scales / np.float32(divisor), 16)
    np.testing.assert_array_equal(ours.astype(ml_dtypes.bfloat16).astype(np.float32), back)

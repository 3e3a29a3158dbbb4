"""8-bit float codes, and which format file owns which headers."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.checkpoint.tensor_data import DTYPES
from degarble.formats.detect import detect
from degarble.formats.float8 import FLOAT8, decode, encode, largest
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers

EVERY = np.arange(256, dtype=np.uint8)
FP8 = Scheme(method="fp8")
CT8 = Scheme(method="compressed-tensors", type="float", num_bits=8, strategy="channel")
CT_BLOCK = Scheme(method="compressed-tensors", type="float", num_bits=8, strategy="block", block_shape=(128, 128))
CT_MX = Scheme(method="compressed-tensors", type="float", num_bits=8, strategy="group", group_size=32)
WEIGHT = ("F8_E4M3", (576, 320))


@pytest.mark.parametrize("dtype", sorted(FLOAT8))
def test_every_number_survives(dtype: str) -> None:
    finite = EVERY[np.isfinite(decode(EVERY, dtype))]
    assert np.array_equal(encode(decode(finite, dtype), dtype), finite)


@pytest.mark.parametrize("dtype", sorted(FLOAT8))
def test_large_arrays_are_looked_up_and_equal_casts_bit_by_bit(dtype: str) -> None:
    codes = np.arange(1 << 16, dtype="<u2").view(np.uint8).reshape(256, -1)  # every pair of codes
    expected = codes.view(DTYPES[dtype]).astype(np.float32)
    np.testing.assert_array_equal(decode(codes, dtype).view(np.uint32), expected.view(np.uint32))
    np.testing.assert_array_equal(decode(codes[:, 1:], dtype).view(np.uint32), expected[:, 1:].view(np.uint32))


def test_casts_saturate() -> None:
    huge = np.array([1e9, -1e9, np.inf, np.nan], np.float32)
    values = decode(encode(huge, "F8_E4M3"), "F8_E4M3")
    assert values[:3].tolist() == [448, -448, 448] and np.isnan(values[3])
    assert largest("F8_E5M2") == 57344


@pytest.mark.engine
def test_torch_agrees() -> None:
    torch = pytest.importorskip("torch")
    names = {"F8_E4M3": "e4m3fn", "F8_E5M2": "e5m2", "F8_E4M3FNUZ": "e4m3fnuz", "F8_E5M2FNUZ": "e5m2fnuz"}
    for dtype in FLOAT8:
        kind = getattr(torch, f"float8_{names[dtype]}")
        theirs = torch.from_numpy(EVERY.copy()).view(kind).float().numpy()
        np.testing.assert_array_equal(decode(EVERY, dtype), theirs)
    values = np.random.default_rng(0).normal(0, 100, 4096).astype(np.float32)
    theirs = torch.from_numpy(values).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(encode(values, "F8_E4M3"), theirs)


@pytest.mark.parametrize(
    ("parts", "declared", "name"),
    [
        ({"weight": WEIGHT, "weight_scale": ("F32", ())}, None, "fp8"),
        ({"weight": WEIGHT, "weight_scale": ("BF16", (1,))}, None, "fp8"),
        ({"weight": WEIGHT, "weight_scale": ("F32", (576, 1))}, None, "fp8"),
        ({"weight": WEIGHT, "weight_scale": ("F32", (576,))}, None, "fp8"),
        ({"weight": WEIGHT, "weight_scale": ("BF16", (5, 3))}, None, "compressed_fp8_block"),
        ({"weight": WEIGHT, "weight_scale": ("BF16", (576,))}, CT_BLOCK, "compressed_fp8_block"),
        ({"weight": WEIGHT, "weight_scale_inv": ("F32", (5, 3))}, None, "fp8_block"),
        ({"weight": WEIGHT, "weight_scale_inv": ("U8", (5, 3))}, FP8, "fp8_block"),
        ({"weight": WEIGHT, "weight_scale_inv": ("F32", ())}, None, "fp8_block"),
        ({"weight": WEIGHT, "weight_scale_inv": ("U8", (576, 10))}, None, "mxfp8"),
        ({"weight": WEIGHT, "weight_scale": ("U8", (576, 9))}, None, "mxfp8"),
        ({"weight": WEIGHT, "weight_scale": ("U8", (10, 576))}, CT_MX, "mxfp8"),
        ({"weight": WEIGHT}, FP8, "fp8_block"),
        ({"weight": WEIGHT}, Scheme(method="fp8", strategy="tensor"), "fp8"),
        ({"weight": WEIGHT}, Scheme(method="fbgemm_fp8"), "fp8"),
        ({"weight": WEIGHT}, CT8, "fp8"),
        ({"weight": WEIGHT}, CT_BLOCK, "compressed_fp8_block"),
        ({"weight": WEIGHT}, CT_MX, "mxfp8"),
        ({"weight": WEIGHT, "input_scale": ("F32", ())}, None, "fp8"),
        ({"weight": WEIGHT, "activation_scale": ("F32", ())}, None, "fp8_block"),
        ({"weight": WEIGHT}, None, "unknown"),
        ({"weight": WEIGHT}, Scheme(method="compressed-tensors", type="int", num_bits=4), "unknown"),
        ({"weight": ("BF16", (576, 320)), "weight_scale_inv": ("F32", (5, 3))}, FP8, "plain"),
    ],
)
def test_one_owner(parts: dict[str, tuple[str, tuple[int, ...]]], declared: Scheme | None, name: str) -> None:
    _, form = detect(headers(**parts), declared, None)
    assert form.format == name
    if form.is_quantized:
        assert form.missing == (() if len(parts) == 2 and "scale" in form.roles else ("scale",))

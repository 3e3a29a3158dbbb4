"""FP8 blocks: grids that fit and grids that do not, ragged edges, and transformers as oracle."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.formats import e8m0, fp8_block
from degarble.formats.detect import detect
from degarble.formats.interface import Form
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, module_of, rewritten

BLOCKS = Scheme(method="fp8", type="float", num_bits=8, strategy="block", block_shape=(128, 128), activations="dynamic")
NO_SIZE = Scheme(method="fp8", type="float", num_bits=8)
PER_TENSOR = Scheme(method="fp8", type="float", num_bits=8, strategy="tensor", activations="static")
RNG = np.random.default_rng(11)


def form_of(shape: Any, grid: Any, declared: Scheme | None = BLOCKS, dtype: str = "F32") -> Form:
    return detect(headers(weight=("F8_E4M3", shape), weight_scale_inv=(dtype, grid)), declared, None)[1]


@pytest.mark.parametrize(
    ("shape", "grid", "declared", "block", "about"),
    [
        ((576, 320), (5, 3), BLOCKS, (128, 128), []),
        ((576, 320), (5, 3), None, (128, 128), []),
        ((576, 320), (5, 3), NO_SIZE, (128, 128), []),
        ((192, 576), (2, 5), BLOCKS, (128, 128), []),
        ((64, 64), (1, 1), BLOCKS, (128, 128), []),
        ((64, 64), (), BLOCKS, None, []),
        ((8, 576, 320), (8, 5, 3), BLOCKS, (128, 128), []),
        ((576, 320), (9, 5), None, (64, 64), []),
        ((576, 320), (9, 5), BLOCKS, (64, 64), ["block_grid"]),
        ((576, 320), (3, 5), BLOCKS, None, ["block_grid"]),  # transposed
        ((576, 320), (3, 5), None, None, ["block_grid"]),
        ((576, 320), (4, 2), BLOCKS, None, ["block_grid"]),  # floor instead of ceil
        ((576, 320), (576, 1), BLOCKS, None, ["block_grid"]),  # per channel under declared blocks
        ((576, 320), (576,), BLOCKS, None, ["block_grid"]),
        ((576, 320), (), BLOCKS, None, ["block_grid"]),
        ((576, 320), (1,), BLOCKS, None, ["block_grid"]),
        ((576, 320), (), PER_TENSOR, None, []),  # Mistral
        ((576, 320), (1, 1), PER_TENSOR, None, []),
        ((64, 64), (1, 1), PER_TENSOR, None, []),
        ((576, 320), (576, 1), PER_TENSOR, None, ["group_size"]),
        ((576, 320), (5, 3), PER_TENSOR, (128, 128), ["block_grid"]),
        ((576, 320), (0, 3), None, None, ["block_grid"]),
        ((576,), (5,), BLOCKS, None, ["shape"]),
    ],
)
def test_grid(shape: Any, grid: Any, declared: Any, block: Any, about: Any) -> None:
    form = form_of(shape, grid, declared)
    assert form.format == "fp8_block" and form.scheme is not None
    assert form.scheme.block_shape == block
    assert [item.about for item in form.contradictions] == about


def test_declared_blocks_of_another_size() -> None:
    odd = Scheme(method="fp8", strategy="block", block_shape=(96, 64))
    form = form_of((576, 320), (6, 5), odd)
    assert form.contradictions == () and form.scheme is not None and form.scheme.block_shape == (96, 64)
    assert [item.about for item in form_of((576, 320), (5, 3), odd).contradictions] == ["block_grid"]
    message = form_of((576, 320), (5, 3), odd).contradictions[0]
    assert message.expected == "[6, 5] for blocks of 96x64 over [576, 320]" and message.found == "F32 [5, 3]"


def test_hostile_block_sizes_are_not_believed() -> None:
    for block in ((0, 0), (-128, 128)):
        form = form_of((576, 320), (5, 3), Scheme(method="fp8", strategy="block", block_shape=block))
        assert form.scheme is not None and form.scheme.block_shape == (128, 128)


def test_missing_parts() -> None:
    static = Scheme(method="fp8", strategy="block", block_shape=(128, 128), activations="static")
    form = detect(headers(weight=("F8_E4M3", (576, 320))), static, None)[1]
    assert (form.format, form.missing) == ("fp8_block", ("scale", "input_scale"))
    assert fp8_block.Fp8Block().suffix_of("scale") == "weight_scale_inv"
    assert fp8_block.CompressedFp8Block().suffix_of("scale") == "weight_scale"
    with_input = headers(weight=("F8_E4M3", (64, 64)), weight_scale_inv=("F32", (1, 1)), activation_scale=("F32", ()))
    assert detect(with_input, static, None)[1].missing == ()


def test_a_scale_of_the_wrong_kind() -> None:
    assert [item.about for item in form_of((576, 320), (5, 3), BLOCKS, "I32").contradictions] == ["dtype"]
    assert form_of((576, 320), (5, 3), BLOCKS, "F8_E8M0").contradictions == ()


def test_compressed_tensors_block_declared_per_channel() -> None:
    channel = Scheme(method="compressed-tensors", type="float", num_bits=8, strategy="channel")
    form = detect(headers(weight=("F8_E4M3", (576, 320)), weight_scale=("BF16", (5, 3))), channel, None)[1]
    assert (form.format, [item.about for item in form.contradictions]) == ("compressed_fp8_block", ["block_grid"])


@pytest.mark.parametrize("shape", [(576, 320), (128, 128), (1, 300), (130, 1)])
def test_quantised_values_are_near(shape: Any) -> None:
    weight = RNG.normal(0, 0.02, shape).astype(np.float32)
    codes, scales = fp8_block.quantize(weight)
    assert scales.shape == fp8_block.grid_of(shape, (128, 128))
    back = fp8_block.dequantize(codes, scales, (128, 128))
    assert np.abs(back - weight).max() <= np.abs(weight).max() * 2**-4


def test_each_block_has_its_own_scale() -> None:
    expanded = fp8_block.expand(np.arange(15, dtype=np.float32).reshape(5, 3), (128, 128), (576, 320))
    assert expanded.shape == (576, 320)
    assert expanded[127, 127] == 0 and expanded[128, 127] == 3 and expanded[575, 319] == 14 and expanded[511, 255] == 10


def test_power_of_two_scales_are_rounded_before_codes() -> None:
    weight = RNG.normal(0, 0.02, (256, 128)).astype(np.float32)
    codes, scales = fp8_block.quantize(weight, power_of_two=True)
    assert np.all(np.log2(scales) % 1 == 0)
    assert np.abs(fp8_block.dequantize(codes, scales, (128, 128)) - weight).max() <= np.abs(weight).max() * 2**-4


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_replace_reads_back(seed: int, exponents: bool) -> None:
    rng = np.random.default_rng(seed)
    codes, scales = fp8_block.quantize(rng.normal(size=(20, 33)).astype(np.float32), (16, 16), power_of_two=exponents)
    kept = e8m0.encode(scales).view(ml_dtypes.float8_e8m0fnu) if exponents else scales
    declared = Scheme(method="fp8", strategy="block", block_shape=(16, 16))
    module = module_of({"weight": codes.view(ml_dtypes.float8_e4m3fn), "weight_scale_inv": kept}, declared)
    np.testing.assert_array_equal(module.scales(), scales)
    new = rng.integers(0, 256, codes.shape, dtype=np.uint8)
    again = rewritten(module, codes=new, scales=scales * 2)
    assert np.array_equal(again.codes(), new) and np.array_equal(again.scales(), scales * 2)
    np.testing.assert_array_equal(again.dequantize(), fp8_block.dequantize(new, scales * 2, (16, 16)))


def test_single_scales_are_read() -> None:
    codes = np.full((4, 6), 56, np.uint8).view(ml_dtypes.float8_e4m3fn)
    whole = module_of({"weight": codes, "weight_scale_inv": np.array(3, np.float32)}, PER_TENSOR)
    assert (whole.dequantize() == 3).all() and whole.form.missing == ("input_scale",)
    rows = module_of({"weight": codes, "weight_scale_inv": np.arange(4, dtype=np.float32)}, BLOCKS)
    assert rows.dequantize()[:, 0].tolist() == [0, 1, 2, 3]


def test_modelopt_keeps_its_blocks_apart_by_axes_of_one() -> None:
    codes, scales = fp8_block.quantize(RNG.normal(size=(200, 300)).astype(np.float32))
    parts = {"weight": codes.view(ml_dtypes.float8_e4m3fn), "weight_scale": scales.reshape(2, 1, 3, 1)}
    declared = Scheme(method="modelopt", type="float", num_bits=8, strategy="block", block_shape=(128, 128))
    module = module_of(parts, declared)
    assert (module.form.format, module.form.contradictions) == ("compressed_fp8_block", ())
    np.testing.assert_array_equal(module.dequantize(), fp8_block.dequantize(codes, scales, (128, 128)))
    again = rewritten(module, scales=module.scales() * 2)
    np.testing.assert_array_equal(again.dequantize(), module.dequantize() * 2)


def test_what_does_not_tile_cannot_be_expanded() -> None:
    with pytest.raises(ValueError, match=r"need a grid \[5, 3\]"):
        fp8_block.expand(np.ones((3, 5), np.float32), (128, 128), (576, 320))


def test_a_grid_that_does_not_tile_has_no_values() -> None:
    codes = np.ones((576, 320), ml_dtypes.float8_e4m3fn)
    module = module_of({"weight": codes, "weight_scale_inv": np.ones((3, 5), np.float32)})
    with pytest.raises(ValueError, match="belongs to no tensor or row"):
        module.dequantize()


@pytest.mark.engine
@pytest.mark.parametrize("scale_fmt", ["float", "ue8m0"])
def test_transformers_agrees(scale_fmt: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("transformers.integrations.finegrained_fp8")
    from types import SimpleNamespace

    config = SimpleNamespace(scale_fmt=scale_fmt, weight_block_size=(128, 128))
    op = theirs.Fp8Dequantize(SimpleNamespace(quantization_config=config))
    weight = RNG.normal(0, 0.02, (256, 384)).astype(np.float32)
    codes, scales = fp8_block.quantize(weight, power_of_two=scale_fmt == "ue8m0")
    stored = torch.from_numpy(codes).view(torch.float8_e4m3fn)
    back = op._dequantize_one(stored, torch.from_numpy(scales), torch.float32)
    np.testing.assert_array_equal(back.numpy(), fp8_block.dequantize(codes, scales, (128, 128)))


@pytest.mark.engine
def test_compressed_tensors_agrees_on_ragged_blocks() -> None:
    torch = pytest.importorskip("torch")
    forward = pytest.importorskip("compressed_tensors.quantization.lifecycle.forward")
    from compressed_tensors.quantization import QuantizationArgs

    weight = RNG.normal(0, 0.02, (576, 320)).astype(np.float32)
    codes, scales = fp8_block.quantize(weight)
    args = QuantizationArgs(num_bits=8, type="float", strategy="block", block_structure=[128, 128], symmetric=True)
    scale = torch.from_numpy(scales)
    back = forward.dequantize(torch.from_numpy(codes).view(torch.float8_e4m3fn), scale, args=args, dtype=torch.float32)
    np.testing.assert_array_equal(back.numpy(), fp8_block.dequantize(codes, scales, (128, 128)))

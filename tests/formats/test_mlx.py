"""MLX affine weights: widths from shapes, values, and two oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.formats import mlx
from degarble.formats.detect import detect
from degarble.formats.interface import StoredModule
from degarble.formats.packing import pack_words
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, module_of, rewritten

RNG = np.random.default_rng(43)


def declared(bits: int, group: int) -> Scheme:
    return Scheme(method="mlx", format="affine", type="int", num_bits=bits, strategy="group", group_size=group)


def stored(
    weight: np.ndarray, bits: int, group: int, scheme: Scheme | None = None, suffix: str = "biases"
) -> StoredModule:
    codes, scales, offsets = mlx.quantize(weight, bits, group)
    parts = {"weight": pack_words(codes, bits).view(np.uint32), "scales": scales, suffix: offsets}
    return module_of(parts, scheme or declared(bits, group))


@settings(deadline=None)
@given(st.sampled_from(mlx.WIDTHS), st.sampled_from([32, 64]), st.integers(0, 2**32 - 1))
def test_values_and_replace(bits: int, group: int, seed: int) -> None:
    weight = np.random.default_rng(seed).normal(0, 0.02, (6, 128)).astype(np.float32)
    module = stored(weight, bits, group)
    assert (module.form.format, module.form.missing, module.form.contradictions) == ("mlx", (), ())
    assert module.form.scheme is not None and module.form.scheme.num_bits == bits and module.form.shape == (6, 128)
    step = module.scales().max()
    assert np.abs(module.dequantize() - weight).max() <= step / 2 * 1.01
    offsets = module.array("offset")
    again = rewritten(module, codes=module.codes()[::-1], scales=module.scales()[::-1], offset=offsets[::-1])
    np.testing.assert_array_equal(again.dequantize(), module.dequantize()[::-1])


def byte_by_byte(raw: np.ndarray, bits: int) -> list[int]:
    """The expressions of MLX's `affine_dequantize` for one pack of bytes, as far as they cross bytes."""
    w = [int(byte) for byte in raw]
    if bits == 3:
        return [
            w[0] & 7, w[0] >> 3 & 7, (w[0] >> 6) + ((w[1] & 1) << 2), w[1] >> 1 & 7, w[1] >> 4 & 7,
            (w[1] >> 7) + ((w[2] & 3) << 1), w[2] >> 2 & 7, w[2] >> 5,
        ]  # fmt: skip
    if bits == 5:
        return [
            w[0] & 31, (w[0] >> 5) + ((w[1] & 3) << 3), w[1] >> 2 & 31, (w[1] >> 7) + ((w[2] & 15) << 1),
            (w[2] >> 4) + ((w[3] & 1) << 4), w[3] >> 1 & 31, (w[3] >> 6) + ((w[4] & 7) << 2), w[4] >> 3,
        ]  # fmt: skip
    return [w[0] & 63, (w[0] >> 6) + ((w[1] & 15) << 2), (w[1] >> 4) + ((w[2] & 3) << 4), w[2] >> 2]


@pytest.mark.parametrize(("bits", "pack"), [(3, 3), (5, 5), (6, 3)])
def test_odd_widths_cross_bytes_as_mlx_writes_them(bits: int, pack: int) -> None:
    codes = RNG.integers(0, 1 << bits, (1, 32), dtype=np.uint8)
    raw = pack_words(codes, bits).view(np.uint8).reshape(-1, pack)
    assert [code for part in raw for code in byte_by_byte(part, bits)] == codes[0].tolist()


@pytest.mark.parametrize(
    ("parts", "scheme", "expected", "bits", "group", "missing", "about"),
    [
        (("U32", (8, 16), (8, 2)), declared(4, 64), (8, 128), 4, 64, (), []),
        (("U32", (8, 16), (8, 2)), declared(4, 64), None, 4, 64, (), []),
        (("U32", (8, 16), (8, 2)), declared(4, 32), (8, 128), 4, 64, (), ["group_size"]),
        (("U32", (8, 24), (8, 2)), declared(4, 64), (8, 128), 6, 64, (), ["num_bits"]),
        (("U32", (8, 16), (8, 3)), declared(4, 64), (8, 128), 4, None, (), ["group_size"]),
        (("U32", (8, 17), (8, 2)), declared(4, 64), (8, 128), None, 64, (), ["num_bits"]),
        (("U32", (8, 16), (4, 2)), declared(4, 64), (8, 128), 4, 64, (), ["shape"]),
        (("U32", (8, 16), None), declared(4, 64), (8, 128), 4, 64, ("scale", "offset"), []),
    ],
)
def test_headers(parts: Any, scheme: Any, expected: Any, bits: Any, group: Any, missing: Any, about: Any) -> None:
    dtype, shape, grid = parts
    found = {"weight": (dtype, shape)}
    if grid:
        found |= {"scales": ("F16", grid), "biases": ("F16", grid)}
    _, form = detect(headers(**found), scheme, expected)
    assert (form.format, form.missing) == ("mlx", missing)
    assert form.scheme is not None and (form.scheme.num_bits, form.scheme.group_size) == (bits, group)
    assert {item.about for item in form.contradictions} == set(about)


def test_offsets_must_match_scales() -> None:
    parts = headers(weight=("U32", (8, 16)), scales=("F16", (8, 2)), biases=("F16", (8, 1)))
    assert [item.about for item in detect(parts, declared(4, 64), None)[1].contradictions] == ["zero_point"]


def test_newer_modes_and_lone_words_are_not_claimed() -> None:
    assert detect(headers(weight=("U32", (8, 16)), scales=("U8", (8, 4))), declared(4, 32), None)[1].format == "unknown"
    assert detect(headers(weight=("U32", (8, 16))), None, None)[1].format == "unknown"


def test_without_a_width_there_are_no_values() -> None:
    words, ones = np.zeros((2, 4), np.uint32), np.ones((2, 1), np.float16)
    with pytest.raises(ValueError, match="cannot be told"):
        module_of({"weight": words, "scales": ones, "biases": ones}).dequantize()


@pytest.mark.engine
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_transformers_agrees(bits: int) -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("transformers.integrations.metal_quantization")
    weight = RNG.normal(0, 0.02, (6, 128)).astype(np.float32)
    packed, scales, offsets = theirs._affine_quantize_tensor(torch.from_numpy(weight), 64, bits)
    module = module_of(
        {"weight": packed.numpy(), "scales": scales.numpy(), "qbiases": offsets.numpy()},
        declared(bits, 64),
    )
    back = theirs._affine_dequantize_tensor(packed, scales, offsets, 64, bits).numpy()
    np.testing.assert_array_equal(module.dequantize(), back)
    assert np.array_equal(stored(weight, bits, 64).array("payload"), packed.numpy())


def test_a_vector_is_no_weight_and_misfit_groups_have_no_values() -> None:
    flat = headers(weight=("U32", (16,)), scales=("F16", (2,)), biases=("F16", (2,)))
    vector = detect(flat, declared(4, 64), None)[1]
    assert "shape" in {item.about for item in vector.contradictions}
    words, grid = np.zeros((2, 16), np.uint32), np.ones((2, 3), np.float16)
    module = module_of({"weight": words, "scales": grid, "biases": grid}, declared(4, 64), (2, 128))
    with pytest.raises(ValueError, match="groups do not divide"):
        module.dequantize()

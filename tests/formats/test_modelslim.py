"""ModelSlim: claimed by its own companions, and a scale that two others tell."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import Array
from degarble.formats.compressed_int import quantize
from degarble.formats.detect import detect
from degarble.formats.modelslim import deq_scales, quotient
from tests.formats.in_memory import headers, module_of, rewritten
from tests.formats.integer_modules import random_weight, said

STATIC = said("ascend", 8, -1, symmetric=True, activations="static")
DYNAMIC = said("ascend", 8, -1, symmetric=True, activations="dynamic")
BF16 = np.dtype(ml_dtypes.bfloat16)


def parts(*, dtype: np.dtype[np.generic] = BF16, as_bits: bool = False) -> dict[str, Array]:
    """A static module with every companion."""
    codes, scales = quantize(random_weight(12, 40))
    scale = scales.astype(dtype)
    step = np.array([0.0173], np.float32)
    product = (scale.astype(np.float32) * step).reshape(-1)
    return {
        "weight": codes,
        "weight_scale": scale,
        "weight_offset": np.zeros_like(scale),
        "input_scale": step,
        "input_offset": np.array([-4], np.float32),
        "deq_scale": product.view(np.int32).astype(np.int64) if as_bits else product,
        "quant_bias": np.arange(12, dtype=np.int32),
    }


@pytest.mark.parametrize("as_bits", [False, True])
def test_stored_module(as_bits: bool) -> None:
    stored = parts(as_bits=as_bits)
    module = module_of(stored, STATIC, (12, 40))
    form = module.form
    assert (form.format, form.shape, form.missing, form.contradictions) == ("modelslim", (12, 40), (), ())
    expected = stored["weight"].astype(np.float32) * stored["weight_scale"].astype(np.float32)
    assert np.array_equal(module.dequantize(), expected)
    again = rewritten(module, codes=-stored["weight"], scales=stored["weight_scale"].astype(np.float32) * 2)
    assert np.array_equal(again.dequantize(), expected * -2)


def test_offsets_count() -> None:
    stored = parts() | {"weight_offset": np.full((12, 1), 5, np.float32)}
    module = module_of(stored, STATIC, (12, 40))
    expected = (stored["weight"].astype(np.float32) - 5) * stored["weight_scale"].astype(np.float32)
    assert np.array_equal(module.dequantize(), expected)


def test_dynamic_needs_the_scale_alone() -> None:
    few = {name: array for name, array in parts().items() if name in ("weight", "weight_scale", "weight_offset")}
    assert module_of(few, DYNAMIC).form.missing == ()
    del few["weight_scale"]
    module = module_of(few, DYNAMIC)
    assert module.form.missing == ("scale",) and module.derivable() == ()


@pytest.mark.parametrize("as_bits", [False, True])
@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float32)])
def test_a_missing_scale_follows(dtype: np.dtype[np.generic], as_bits: bool) -> None:
    """In bfloat16 to the bit; in float32 to a value with the same product."""
    whole = parts(dtype=dtype, as_bits=as_bits)
    module = module_of({name: array for name, array in whole.items() if name != "weight_scale"}, STATIC, (12, 40))
    assert module.form.missing == ("scale",) and module.derivable() == ("scale",)
    found = module.derive_part("scale", "BF16" if dtype == BF16 else "F32")
    assert found.dtype == dtype and found.shape == (12, 1)
    if dtype == BF16:
        assert np.array_equal(found, whole["weight_scale"])
        assert np.array_equal(module.dequantize(), module_of(whole, STATIC, (12, 40)).dequantize())
    product = (found.astype(np.float32) * whole["input_scale"]).reshape(-1)
    assert np.array_equal(product, deq_scales(whole["deq_scale"]))


@given(st.floats(2**-20, 2**10, width=32), st.floats(2**-20, 2**10, width=32), st.sampled_from([BF16, np.float16]))
def test_quotient_undoes_the_product(scale: float, step: float, dtype: np.dtype[np.generic]) -> None:
    stored = np.array([scale]).astype(dtype)
    product = stored.astype(np.float32) * np.float32(step)
    assert np.array_equal(quotient(product, np.float32(step), np.dtype(dtype)), stored)


@pytest.mark.parametrize(
    "change",
    [
        {"input_scale": np.array([0.0], np.float32)},
        {"input_scale": np.array([np.nan], np.float32)},
        {"input_scale": np.ones(40, np.float32)},
        {"deq_scale": np.full(12, np.inf, np.float32)},
        {"deq_scale": np.ones(5, np.float32)},
        {"deq_scale": -np.ones(12, np.float32)},
    ],
)
def test_what_forbids_it_is_said(change: dict[str, Array]) -> None:
    stored = parts() | change
    del stored["weight_scale"]
    module = module_of(stored, STATIC, (12, 40))
    with pytest.raises(ValueError, match="_scale is not one"):
        module.derive_part("scale", "F32")


@pytest.mark.parametrize(
    ("suffix", "spec", "about"),
    [
        ("weight_scale", ("F32", (11, 1)), "shape"),
        ("deq_scale", ("I32", (12,)), "dtype"),
        ("deq_scale", ("F32", (12, 2)), "shape"),
        ("quant_bias", ("I32", (13,)), "shape"),
        ("input_scale", ("F32", (40,)), "shape"),
    ],
)
def test_parts_that_do_not_fit(suffix: str, spec: tuple[str, tuple[int, ...]], about: str) -> None:
    healthy = {
        "weight": ("I8", (12, 40)),
        "weight_scale": ("F32", (12, 1)),
        "input_scale": ("F32", (1,)),
        "deq_scale": ("F32", (12,)),
        "quant_bias": ("I32", (12,)),
    }
    assert detect(headers(**healthy), STATIC, (12, 40))[1].contradictions == ()
    _, form = detect(headers(**{**healthy, suffix: spec}), STATIC, (12, 40))
    assert [one.about for one in form.contradictions] == [about]


def test_other_shapes_are_said_and_other_formats_left_alone() -> None:
    fmt, form = detect(headers(weight=("I8", (2, 3, 4)), deq_scale=("F32", (3,))), STATIC, None)
    assert fmt.name == "modelslim" and form.contradictions
    assert detect(headers(weight=("I8", (4, 4)), weight_scale=("F32", (4, 1))), None, None)[0].name == "compressed_int"

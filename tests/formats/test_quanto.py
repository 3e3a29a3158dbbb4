"""quanto: integers, floats, packed weights that are only named. Golden values: test_float_golden.py."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from degarble.formats import int8_rows
from degarble.formats.detect import detect
from degarble.formats.scheme import Scheme
from degarble.formats.split import split_name
from tests.formats.in_memory import headers, module_of, rewritten

INT8 = Scheme(method="quanto", type="int", num_bits=8, strategy="channel")
RNG = np.random.default_rng(37)


def test_names() -> None:
    assert split_name("a.b.weight._data", {}) == ("a.b", "weight._data")


def test_integers_and_replace() -> None:
    weight = RNG.normal(0, 0.02, (16, 24)).astype(np.float32)
    codes, scales = int8_rows.quantize(weight)
    module = module_of({"weight._data": codes, "weight._scale": scales}, INT8)
    assert (module.form.format, module.form.missing, module.form.contradictions) == ("quanto", (), ())
    np.testing.assert_array_equal(module.dequantize(), int8_rows.dequantize(codes, scales))
    again = rewritten(module, codes=codes[::-1], scales=scales[::-1])
    np.testing.assert_array_equal(again.dequantize(), module.dequantize()[::-1])


def test_floats() -> None:
    codes = RNG.normal(0, 50, (4, 6)).astype(ml_dtypes.float8_e4m3fn)
    module = module_of({"weight._data": codes, "weight._scale": np.full((4, 1), 2, np.float32)})
    assert module.form.scheme is not None and module.form.scheme.type == "float"
    np.testing.assert_array_equal(module.dequantize(), codes.astype(np.float32) * 2)
    assert np.array_equal(module.codes(), codes.view(np.uint8))


def test_packed_weights_are_named_not_read() -> None:
    packed, scale = np.zeros((4, 3), np.uint8), np.ones((4, 1), np.float32)
    int4 = Scheme(method="quanto", type="int", num_bits=4)
    module = module_of({"weight._data": packed, "weight._scale": scale}, int4, (4, 6))
    assert (module.form.format, module.form.shape, module.form.contradictions) == ("quanto", (4, 6), ())
    with pytest.raises(ValueError, match="are not read"):
        module.codes()


@pytest.mark.parametrize(
    ("parts", "declared", "missing", "about"),
    [
        ({"weight___data": ("I8", (4, 6))}, INT8, ("scale",), []),
        ({"weight___data": ("I8", (4, 6)), "weight___scale": ("F32", (6, 1))}, INT8, (), ["shape"]),
        ({"weight___data": ("I8", (6,)), "weight___scale": ("F32", (6, 1))}, INT8, (), ["shape"]),
        ({"weight___data": ("I8", (4, 6)), "weight___scale": ("F32", (4, 1))}, Scheme(method="gptq"), (), ["layout"]),
        (
            {"weight___data": ("I8", (4, 6)), "weight___scale": ("F32", (4, 1))},
            Scheme(method="quanto", type="int", num_bits=8, activations="static"),
            ("input_scale",),
            [],
        ),
    ],
)
def test_headers(parts: Any, declared: Any, missing: Any, about: Any) -> None:
    _, form = detect(headers(**parts), declared, None)
    assert (form.format, form.missing) == ("quanto", missing)
    assert [item.about for item in form.contradictions] == about

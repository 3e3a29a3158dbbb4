"""torchao: rows, groups, zero points, packed weights that are only named. Golden values: test_float_golden.py."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from degarble.formats.detect import detect
from degarble.formats.scheme import Scheme
from degarble.formats.split import split_name
from tests.formats.in_memory import headers, module_of, rewritten

INT8 = Scheme(method="torchao", type="int", num_bits=8, strategy="channel")
RNG = np.random.default_rng(41)


def test_names() -> None:
    assert split_name("a.b._weight_qdata", {}) == ("a.b", "_weight_qdata")
    assert split_name("a.b._weight_scale", {}) == ("a.b", "_weight_scale")


@pytest.mark.parametrize("groups", [1, 3])
def test_integers_and_replace(groups: int) -> None:
    codes = RNG.integers(-128, 128, (4, 12)).astype(np.int8)
    scales = RNG.uniform(0.1, 1, (4, groups)).astype(np.float32)
    zeros = RNG.integers(-5, 5, (4, groups)).astype(np.int8)
    module = module_of({"_weight_qdata": codes, "_weight_scale": scales, "_weight_zero_point": zeros})
    assert (module.form.format, module.form.missing, module.form.contradictions) == ("torchao", (), ())
    assert module.form.scheme is not None and module.form.scheme.group_size == (None if groups == 1 else 4)
    wide = np.repeat(zeros.astype(np.float32), 12 // groups, axis=1)
    expected = (codes.astype(np.float32) - wide) * np.repeat(scales, 12 // groups, axis=1)
    np.testing.assert_array_equal(module.dequantize(), expected)
    zeros_back = module.zeros()
    assert zeros_back is not None and zeros_back.dtype == np.int32
    again = rewritten(module, codes=codes[::-1], scales=scales[::-1], zeros=zeros_back[::-1])
    np.testing.assert_array_equal(again.dequantize(), expected[::-1])


def test_floats() -> None:
    codes = RNG.normal(0, 50, (4, 6)).astype(ml_dtypes.float8_e4m3fn)
    module = module_of({"_weight_qdata": codes, "_weight_scale": np.full((4, 1), 2, np.float32)})
    np.testing.assert_array_equal(module.dequantize(), codes.astype(np.float32) * 2)


def test_packed_weights_are_named_not_read() -> None:
    module = module_of({"_weight_qdata": np.zeros((4, 3), np.uint8), "_weight_scale": np.ones((2, 4), np.float32)})
    assert module.form.format == "torchao" and module.form.contradictions == ()
    with pytest.raises(ValueError, match="are not read"):
        module.codes()


@pytest.mark.parametrize(
    ("parts", "declared", "missing", "about"),
    [
        ({"_weight_qdata": ("I8", (4, 6))}, INT8, ("scale",), []),
        ({"_weight_qdata": ("I8", (4, 6)), "_weight_scale": ("F32", (6, 1))}, None, (), ["shape"]),
        ({"_weight_qdata": ("I8", (4, 6)), "_weight_scale": ("F32", (4, 4))}, None, (), ["shape"]),
        ({"_weight_qdata": ("I8", (4, 6)), "_weight_scale": ("F32", (4, 2))}, INT8, (), ["group_size"]),
        (
            {
                "_weight_qdata": ("I8", (4, 6)),
                "_weight_scale": ("F32", (4, 2)),
                "_weight_zero_point": ("I8", (4, 1)),
            },
            None,
            (),
            ["zero_point"],
        ),
    ],
)
def test_headers(parts: Any, declared: Any, missing: Any, about: Any) -> None:
    _, form = detect(headers(**parts), declared, None)
    assert (form.format, form.missing) == ("torchao", missing)
    assert [item.about for item in form.contradictions] == about


def test_a_misfit_scale_has_no_values() -> None:
    module = module_of({"_weight_qdata": np.zeros((4, 6), np.int8), "_weight_scale": np.ones((4, 4), np.float32)})
    with pytest.raises(ValueError, match="fits no grouping"):
        module.dequantize()

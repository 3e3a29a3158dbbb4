"""LLM.int8."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from degarble.formats import int8_rows
from degarble.formats.detect import detect
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, module_of, rewritten

INT8 = Scheme(method="bitsandbytes", type="int", num_bits=8, strategy="channel", symmetric=True)
RNG = np.random.default_rng(31)


def test_values_and_replace() -> None:
    weight = RNG.normal(0, 0.02, (16, 24)).astype(np.float32)
    codes, scales = int8_rows.quantize(weight)
    module = module_of({"weight": codes, "SCB": scales[:, 0] * 127, "weight_format": np.array(0, np.uint8)}, INT8)
    assert (module.form.format, module.form.missing, module.form.contradictions) == ("bitsandbytes_int8", (), ())
    assert np.abs(module.dequantize() - weight).max() <= np.abs(weight).max() / 127 / 2 * 1.01
    again = rewritten(module, codes=codes[::-1], scales=module.scales()[::-1])
    np.testing.assert_allclose(again.dequantize(), module.dequantize()[::-1], rtol=2**-22)
    index = module.group_index()
    assert index is not None and not index.any()


def test_rows_of_zeros_have_scale_one() -> None:
    codes, scales = int8_rows.quantize(np.zeros((2, 4), np.float32))
    assert scales.tolist() == [[1], [1]] and not codes.any()


@pytest.mark.parametrize(
    ("parts", "declared", "missing", "about"),
    [
        ({"weight": ("I8", (16, 24))}, INT8, ("scale",), []),
        ({"weight": ("I8", (16, 24)), "weight_format": ("U8", ())}, None, ("scale",), []),
        ({"weight": ("I8", (16, 24)), "SCB": ("F32", (24,))}, None, (), ["shape"]),
        ({"weight": ("I8", (16,)), "SCB": ("F32", (16,))}, None, (), ["shape"]),
        (
            {"weight": ("I8", (16, 24)), "SCB": ("F32", (16,))},
            Scheme(method="bitsandbytes", num_bits=4),
            (),
            ["num_bits"],
        ),
    ],
)
def test_headers(parts: Any, declared: Any, missing: Any, about: Any) -> None:
    _, form = detect(headers(**parts), declared, None)
    assert (form.format, form.missing) == ("bitsandbytes_int8", missing)
    assert [item.about for item in form.contradictions] == about


def test_without_evidence_nothing_is_claimed() -> None:
    assert detect(headers(weight=("I8", (16, 24))), None, None)[1].format == "unknown"

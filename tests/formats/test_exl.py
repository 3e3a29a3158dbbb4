"""EXL2 and EXL3: named, held to their headers, never read."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.formats.detect import detect
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, module_of

EXL2 = {
    "q_weight": ("I32", (72, 64)),
    "q_scale": ("I32", (4, 8)),
    "q_scale_max": ("F16", (4,)),
    "q_groups": ("I16", (8,)),
    "q_invperm": ("I16", (128,)),
}
EXL3 = {"trellis": ("I16", (8, 4, 64)), "suh": ("F16", (128,)), "svh": ("F16", (64,))}


def test_exl2() -> None:
    _, form = detect(headers(**EXL2), Scheme(method="exl2", type="int", strategy="group"), None)
    assert (form.format, form.shape, form.missing, form.contradictions) == ("exl2", (64, 128), (), ())


@pytest.mark.parametrize(
    ("gone", "role"), [("q_scale", "scale"), ("q_groups", "groups"), ("q_invperm", "inverse_permutation")]
)
def test_exl2_misses_parts(gone: str, role: str) -> None:
    _, form = detect(headers(**{name: spec for name, spec in EXL2.items() if name != gone}), None, None)
    assert (form.format, form.missing) == ("exl2", (role,))


def test_exl2_contradictions() -> None:
    _, form = detect(headers(**{**EXL2, "q_scale_max": ("F16", (5,)), "q_weight": ("I32", (72,))}), None, None)
    assert [item.about for item in form.contradictions] == ["shape", "group_size"]


def test_exl3() -> None:
    _, form = detect(headers(**EXL3), Scheme(method="exl3"), None)
    assert (form.format, form.shape, form.missing, form.contradictions) == ("exl3", (64, 128), (), ())
    assert form.scheme is not None and form.scheme.num_bits == 4
    half = detect(headers(**{**EXL3, "trellis": ("I16", (8, 4, 40))}), None, None)[1]
    assert half.scheme is not None and half.scheme.num_bits is None


def test_exl3_headers() -> None:
    swapped = detect(headers(**{**EXL3, "suh": ("F16", (64,)), "svh": ("F16", (128,))}), None, None)[1]
    assert [(item.about, item.role) for item in swapped.contradictions] == [
        ("shape", "input_signs"),
        ("shape", "output_signs"),
    ]
    assert detect(headers(trellis=("I16", (8, 4, 64))), None, None)[1].missing == ("input_signs", "output_signs")
    flat = detect(headers(trellis=("I16", (8, 4))), None, None)[1]
    assert [item.about for item in flat.contradictions] == ["shape"] and flat.shape is None


def test_values_are_refused() -> None:
    for payload in ("q_weight", "trellis"):
        module = module_of({payload: np.zeros((1, 1, 16), np.int16)})
        for read in (module.codes, module.scales, module.dequantize):
            with pytest.raises(ValueError, match="not read"):
                read()

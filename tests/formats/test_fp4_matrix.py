"""Which FP4 file owns which headers, and what the shared header rules see."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.formats.detect import detect
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers

NV = Scheme(
    method="compressed-tensors", format="nvfp4-pack-quantized", type="float", num_bits=4, strategy="tensor_group",
    group_size=16, activations="local",
)  # fmt: skip
MX = Scheme(method="compressed-tensors", type="float", num_bits=4, strategy="group", group_size=32)
MODELOPT = Scheme(method="modelopt", type="float", num_bits=4, strategy="group", group_size=16, activations="static")
QUARK = Scheme(method="quark", type="float", num_bits=4, group_size=32)
PACKED = ("U8", (64, 48))
E4M3 = ("F8_E4M3", (64, 6))
BYTES = ("U8", (64, 3))
ONE = ("F32", (1,))


@pytest.mark.parametrize(
    ("parts", "declared", "name", "missing"),
    [
        ({"weight_packed": PACKED, "weight_scale": E4M3, "weight_global_scale": ONE}, None, "nvfp4", ()),
        ({"weight_packed": PACKED, "weight_scale": E4M3, "weight_global_scale": ONE}, NV, "nvfp4", ("input_scale",)),
        ({"weight_packed": PACKED, "weight_scale": E4M3}, None, "nvfp4", ("global_scale",)),
        ({"weight_packed": PACKED, "weight_global_scale": ONE}, None, "nvfp4", ("scale",)),
        ({"weight_packed": PACKED}, NV, "nvfp4", ("scale", "global_scale", "input_scale")),
        ({"weight_packed": PACKED, "input_global_scale": ONE}, None, "nvfp4", ("scale", "global_scale")),
        ({"weight_packed": PACKED, "weight_scale": BYTES}, None, "mxfp4", ()),
        ({"weight_packed": PACKED, "weight_scale": ("F8_E8M0", (64, 3))}, MX, "mxfp4", ()),
        ({"weight_packed": PACKED}, MX, "mxfp4", ("scale",)),
        ({"weight_packed": PACKED}, None, "unknown", ()),
        ({"weight": PACKED, "weight_scale": E4M3, "weight_scale_2": ("F32", ())}, None, "modelopt_nvfp4", ()),
        ({"weight": PACKED, "weight_scale": E4M3}, MODELOPT, "modelopt_nvfp4", ("global_scale", "input_scale")),
        ({"weight": PACKED, "weight_scale_2": ("F32", ())}, None, "modelopt_nvfp4", ("scale",)),
        ({"weight": PACKED}, MODELOPT, "modelopt_nvfp4", ("scale", "global_scale", "input_scale")),
        ({"weight": PACKED}, None, "unknown", ()),
        ({"weight": PACKED, "weight_scale": BYTES}, None, "quark_mxfp4", ()),
        ({"weight": PACKED}, QUARK, "quark_mxfp4", ("scale",)),
        ({"weight": PACKED, "weight_scale": ("U8", (64, 5))}, None, "unknown", ()),
        ({"weight": ("I8", (64, 48)), "weight_scale_inv": ("F8_E8M0", (64, 3))}, None, "deepseek_mxfp4", ()),
    ],
)
def test_owner_and_missing_parts(parts: Any, declared: Any, name: Any, missing: Any) -> None:
    _, form = detect(headers(**parts), declared, None)
    assert (form.format, form.missing, form.contradictions) == (name, missing, ())
    if form.is_quantized:
        assert form.shape == (64, 96) and form.scheme is not None
        assert form.scheme.group_size == (32 if "mxfp4" in name else 16)


@pytest.mark.parametrize(
    ("parts", "declared", "about"),
    [
        ({"weight_packed": PACKED, "weight_scale": ("F8_E4M3", (64, 3))}, NV, ["group_size"]),
        ({"weight_packed": PACKED, "weight_scale": ("F8_E4M3", (64, 5))}, None, ["group_size"]),
        ({"weight_packed": PACKED, "weight_scale": ("F8_E4M3", (6, 64))}, None, ["shape"]),
        ({"weight_packed": PACKED, "weight_scale": ("F8_E4M3", (64, 0))}, None, ["group_size"]),
        ({"weight_packed": PACKED, "weight_scale": ("U8", (64, 6))}, NV, ["dtype"]),
        ({"weight_packed": PACKED, "weight_scale": ("U8", (64, 6))}, MX, ["group_size"]),
        ({"weight_packed": PACKED, "weight_scale": E4M3}, MX, ["group_size"]),
        ({"weight_packed": PACKED, "weight_scale": BYTES}, NV, ["group_size"]),
        ({"weight_packed": PACKED, "weight_scale": E4M3, "weight_global_scale": ("F32", (6, 4))}, None, ["shape"]),
        ({"weight_packed": PACKED, "weight_scale": E4M3, "weight_global_scale": ("I32", (1,))}, None, ["dtype"]),
        ({"weight": PACKED, "weight_scale": E4M3}, NV, ["layout"]),
        ({"weight": ("U8", (48,)), "weight_scale_2": ONE}, None, ["shape"]),
        (
            {"weight_packed": PACKED, "weight_scale": E4M3},
            Scheme(method="compressed-tensors", type="int", num_bits=4, strategy="group", group_size=16),
            ["dtype"],
        ),
    ],
)
def test_headers_that_contradict(parts: Any, declared: Any, about: Any) -> None:
    _, form = detect(headers(**parts), declared, None)
    assert form.is_quantized
    assert [item.about for item in form.contradictions] == about

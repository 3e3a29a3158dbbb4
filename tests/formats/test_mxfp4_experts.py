"""gpt-oss experts: names without a dot, four axes, and transformers as oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from degarble.formats import e8m0, fp4_matrix, mxfp4_experts
from degarble.formats.detect import detect
from degarble.formats.interface import StoredModule
from degarble.formats.scheme import Scheme
from degarble.formats.split import split_name
from tests.formats.in_memory import headers, module_of, rewritten

RNG = np.random.default_rng(23)
DECLARED = Scheme(method="mxfp4", type="float", num_bits=4, strategy="group", group_size=32)


def stored() -> tuple[StoredModule, np.ndarray, np.ndarray]:
    blocks = RNG.integers(0, 256, (3, 8, 2, 16), dtype=np.uint8)
    scales = RNG.integers(110, 130, (3, 8, 2), dtype=np.uint8)
    return module_of({"_blocks": blocks, "_scales": scales}, DECLARED), blocks, scales


def test_names_are_joined_by_an_underscore() -> None:
    stem = "model.layers.0.mlp.experts.gate_up_proj"
    names = {f"{stem}_blocks": 1, f"{stem}_scales": 1, f"{stem}_bias": 1}
    assert [split_name(name, names) for name in names] == [(stem, "_blocks"), (stem, "_scales"), (stem, "_bias")]


def test_values() -> None:
    module, blocks, scales = stored()
    assert (module.form.format, module.form.shape, module.form.contradictions) == ("mxfp4_experts", (3, 8, 64), ())
    codes = mxfp4_experts.unpack(blocks)
    assert codes[0, 0, :2].tolist() == [blocks[0, 0, 0, 0] & 15, blocks[0, 0, 0, 0] >> 4]
    assert np.array_equal(mxfp4_experts.pack(codes), blocks)
    expected = fp4_matrix.dequantize(codes, e8m0.decode(scales), 32)
    np.testing.assert_array_equal(module.dequantize(), expected)
    index = module.group_index()
    assert index is not None and index.tolist() == [0] * 32 + [1] * 32


def test_replace_reads_back() -> None:
    module, _, _ = stored()
    again = rewritten(module, codes=module.codes()[::-1], scales=module.scales()[::-1] * 8)
    np.testing.assert_array_equal(again.dequantize(), module.dequantize()[::-1] * 8)
    with pytest.raises(ValueError, match="do not divide"):
        mxfp4_experts.pack(np.zeros((1, 1, 33), np.uint8))


@pytest.mark.parametrize(
    ("parts", "declared", "missing", "about"),
    [
        ({"_blocks": ("U8", (3, 8, 2, 16))}, DECLARED, ("scale",), []),
        ({"_blocks": ("U8", (3, 8, 2, 16))}, None, ("scale",), []),
        ({"_blocks": ("U8", (3, 8, 2, 16)), "_scales": ("U8", (3, 8, 4))}, DECLARED, (), ["group_size"]),
        ({"_blocks": ("U8", (3, 8, 2, 16)), "_scales": ("U8", (3, 2, 8))}, DECLARED, (), ["shape"]),
        ({"_blocks": ("U8", (3, 8, 2, 16)), "_scales": ("F32", (3, 8, 2))}, DECLARED, (), ["dtype"]),
        ({"_blocks": ("U8", (3, 8, 32)), "_scales": ("U8", (3, 8, 2))}, DECLARED, (), ["shape"]),
        ({"_blocks": ("U8", (3, 8, 2, 16)), "_scales": ("U8", (3, 8, 2))}, Scheme(method="fp8"), (), ["layout"]),
    ],
)
def test_headers(parts: Any, declared: Any, missing: Any, about: Any) -> None:
    _, form = detect(headers(**parts), declared, None)
    assert (form.format, form.missing) == ("mxfp4_experts", missing)
    assert [item.about for item in form.contradictions] == about


@pytest.mark.engine
def test_transformers_agrees() -> None:
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("transformers.integrations.mxfp4")
    module, blocks, scales = stored()
    back = theirs.convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32)
    np.testing.assert_array_equal(module.dequantize().transpose(0, 2, 1), back.numpy())

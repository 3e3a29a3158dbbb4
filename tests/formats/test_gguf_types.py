"""The ggml type table against gguf-py's own."""

from __future__ import annotations

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from degarble.formats.gguf_types import GGML_TYPE_BY_NAME, GGML_TYPES


def test_equals_gguf_py() -> None:
    assert {kind: (GGML_TYPES[kind][1], GGML_TYPES[kind][2]) for kind in GGML_TYPES} == {
        int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()
    }
    assert {kind: named.name for kind, named in GGML_TYPES.items()} == {int(k): k.name for k in GGMLQuantizationType}


def test_bits_per_weight() -> None:
    assert GGML_TYPE_BY_NAME["Q4_K"].bits_per_weight == 4.5
    assert GGML_TYPE_BY_NAME["Q8_0"].bits_per_weight == 8.5
    assert GGML_TYPE_BY_NAME["BF16"].bits_per_weight == 16

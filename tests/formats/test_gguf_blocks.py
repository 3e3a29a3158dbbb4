"""GGUF blocks: gguf-py as oracle for values, and what `replace` may touch."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from degarble.checkpoint.folder import LocalFolder
from degarble.checkpoint.gguf import read_gguf
from degarble.checkpoint.interface import num_elements
from degarble.checkpoint.tensor_data import TensorReader
from degarble.formats import gguf_blocks
from degarble.formats.detect import detect
from degarble.formats.gguf_types import GGML_TYPE_BY_NAME, GGML_TYPES
from degarble.formats.interface import StoredModule
from tests.formats.in_memory import MemoryReader, _module, info_of, rewritten

RNG = np.random.default_rng(47)
BLOCK_TYPES = sorted(kind.name for kind in GGML_TYPES.values() if kind.block_size > 1)
UNREADABLE = {"Q8_1", "Q8_K", "Q1_0"}
"""gguf-py has no dequantiser for these."""
HAS_MINIMUM = {"Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"}


def stored(name: str, shape: tuple[int, ...] = (3, 512)) -> tuple[StoredModule, np.ndarray]:
    kind = GGML_TYPE_BY_NAME[name]
    raw = RNG.integers(0, 256, num_elements(shape) // kind.block_size * kind.type_size, dtype=np.uint8)
    if name in gguf_blocks.DELTA_AT:
        blocks, at = raw.reshape(-1, kind.type_size), gguf_blocks.DELTA_AT[name]
        deltas = RNG.uniform(0.01, 1, (len(blocks), 1)).astype("<f2")
        blocks[:, at : at + 2] = deltas.view(np.uint8)
        if name in HAS_MINIMUM:
            blocks[:, at + 2 : at + 4] = deltas.view(np.uint8)
    if name == "MXFP4":
        raw.reshape(-1, 17)[:, 0] = RNG.integers(100, 140, raw.size // 17)
    info = info_of("blk.0.ffn_up.weight", f"GGUF:{name}", shape, raw.size)
    return _module("blk.0.ffn_up", {"weight": info}, None, None, MemoryReader({info.name: raw})), raw


@pytest.mark.parametrize("name", sorted(set(BLOCK_TYPES) - UNREADABLE))
def test_values_are_ggufs(name: str) -> None:
    module, raw = stored(name)
    kind = GGML_TYPE_BY_NAME[name]
    with np.errstate(all="ignore"):
        theirs = gguf.quants.dequantize(raw.reshape(3, -1), gguf.GGMLQuantizationType[name])
        np.testing.assert_array_equal(module.dequantize(), theirs)
    form = module.form
    assert (form.format, form.shape, form.contradictions, form.missing) == ("gguf", (3, 512), (), ())
    assert form.scheme is not None and form.scheme.format == name
    assert form.scheme.num_bits is not None and form.scheme.num_bits <= -(-kind.type_size * 8 // kind.block_size)
    index = module.group_index()
    assert index is not None and index.tolist()[-1] == 512 // kind.block_size - 1


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_types_without_a_dequantiser_say_so(name: str) -> None:
    with pytest.raises(ValueError, match="cannot dequantise"):
        stored(name)[0].dequantize()


@pytest.mark.parametrize("name", [*sorted(gguf_blocks.DELTA_AT), "MXFP4"])
def test_scales_are_where_the_table_says(name: str) -> None:
    """Doubling d doubles every weight; where a block has minima too, only the part above them."""
    module, _ = stored(name)
    again = rewritten(module, scales=module.scales() * 2)
    np.testing.assert_array_equal(again.scales(), module.scales() * 2)
    before, after = module.dequantize(), again.dequantize()
    if name not in HAS_MINIMUM:
        np.testing.assert_allclose(after, before * 2, rtol=1e-6)
    else:
        zero = rewritten(module, scales=module.scales() * 0).dequantize()
        np.testing.assert_allclose(after - zero, (before - zero) * 2, rtol=1e-4, atol=1e-4)
    broken = rewritten(module, scales=np.full_like(module.scales(), np.nan))
    assert not np.isfinite(broken.dequantize()).all()


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0"])
def test_codes(name: str) -> None:
    module, _ = stored(name)
    codes, scales, zeros = module.codes(), module.scales(), module.zeros()
    shift = 0 if zeros is None else zeros[:, module.group_index()]
    ours = (codes.astype(np.float32) - shift) * scales[:, module.group_index()]
    np.testing.assert_array_equal(module.dequantize(), ours.astype(np.float32))
    again = rewritten(module, codes=codes[::-1], scales=scales[::-1])
    np.testing.assert_array_equal(again.dequantize(), module.dequantize()[::-1])


def test_what_has_no_codes_or_scales() -> None:
    module, _ = stored("Q4_K")
    with pytest.raises(ValueError, match="cannot be told apart"):
        module.codes()
    with pytest.raises(ValueError, match="cannot be written"):
        module.replace(codes=np.zeros((3, 512)))
    with pytest.raises(ValueError, match="no zeros of its own"):
        module.replace(zeros=np.zeros((3, 512)))
    spread, _ = stored("IQ1_M")
    with pytest.raises(ValueError, match="no single scale"):
        spread.scales()
    with pytest.raises(ValueError, match="no single scale"):
        spread.replace(scales=np.zeros(1))
    with pytest.raises(ValueError, match="cannot be written"):
        stored("Q4_0")[0].replace(codes=np.full((3, 512), 16))


@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes", "about"),
    [
        ("GGUF:Q4_K", (4, 256), 576, []),
        ("GGUF:Q4_K", (4, 300), 576, ["shape"]),
        ("GGUF:Q4_K", (4, 256), 500, ["shape"]),
        ("GGUF:Q4_K", (), 144, ["shape"]),
        ("GGUF:Q4_K", (0, 0), 0, ["shape"]),
        ("GGUF:Q8_0", (2, 4, 64), 544, []),
    ],
)
def test_headers(dtype: str, shape: tuple[int, ...], nbytes: int, about: list[str]) -> None:
    _, form = detect({"weight": info_of("blk.0.w", dtype, shape, nbytes)}, None, None)
    assert form.format == "gguf"
    assert [item.about for item in form.contradictions] == about


def test_other_dtypes_are_not_claimed() -> None:
    for dtype in ("GGUF:I32", "GGUF:type 99", "Q4_K"):
        assert detect({"weight": info_of("w", dtype, (4, 256), 10)}, None, None)[1].format == "unknown"


def test_broken_bytes_raise() -> None:
    kind = GGML_TYPE_BY_NAME["Q8_0"]
    with pytest.raises(ValueError, match="not whole blocks"):
        gguf_blocks.dequantize(np.zeros(35, np.uint8), kind, (1, 32))
    with pytest.raises(ValueError, match="are not"):
        gguf_blocks.dequantize(np.zeros(34, np.uint8), kind, (2, 32))


@pytest.mark.parametrize("name", ["gguf-py-q8_0", "llama.cpp-q4_0", "llama.cpp-q4_k_m"])
def test_golden_files(golden: Path, name: str) -> None:
    file = next(path.name for path in (golden / name).iterdir() if path.suffix == ".gguf")
    source = LocalFolder(golden / name)
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(golden / name / file).tensors}
    count = 0
    for tensor, info in read_gguf(source, file).tensors.items():
        module = _module(tensor, {"weight": info}, None, None, TensorReader(source))
        if module.form.format != "gguf":
            continue
        expected = gguf.quants.dequantize(theirs[tensor].data, theirs[tensor].tensor_type)
        np.testing.assert_array_equal(module.dequantize(), expected)
        count += 1
    assert count >= 9

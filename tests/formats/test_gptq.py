"""GPTQ against loops written from AutoGPTQ's formulas, and what its headers must and must not say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import dequantize, group_of, quantize
from degarble.formats.detect import detect
from degarble.formats.gptq import pack, pack_zeros, unpack, unpack_zeros
from degarble.formats.interface import Form
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, module_of, rewritten
from tests.formats.integer_modules import gptq_parts, random_weight, said


def stream_bits(words: Array, bits: int, count: int) -> list[int]:
    """Codes of one packed column by arbitrary-precision arithmetic: an oracle that shares nothing with numpy."""
    number = sum(int(word) % 2**32 << 32 * place for place, word in enumerate(words))
    return [number >> bits * place & (1 << bits) - 1 for place in range(count)]


@given(st.integers(2, 8), st.integers(1, 5), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_pack_and_unpack(bits: int, out: int, columns: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (out, columns), np.uint8)
    packed = pack(codes, bits)
    assert packed.dtype == np.int32
    assert packed.shape == (-(-columns * bits // 32), out)
    assert np.array_equal(unpack(packed, bits, columns), codes)
    assert [stream_bits(packed[:, row], bits, columns) for row in range(out)] == codes.tolist()


@given(st.integers(2, 8), st.booleans(), st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_zero_points(bits: int, v2: bool, out: int, groups: int, seed: int) -> None:
    """v1 stores zero - 1, modulo the field: a zero of 0 becomes the highest code and leaves its neighbour alone."""
    zeros = np.random.default_rng(seed).integers(0, 1 << bits, (out, groups)).astype(np.int32)
    packed = pack_zeros(zeros, bits, v2=v2)
    stored = [stream_bits(packed[group], bits, out) for group in range(groups)]
    assert stored == [[(int(z) - (not v2)) % (1 << bits) for z in column] for column in zeros.T]
    assert np.array_equal(unpack_zeros(packed, bits, out, v2=v2), zeros)


def test_codes_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="codes must be in"):
        pack(np.array([[16]]), 4)
    with pytest.raises(ValueError, match="zero points must be in"):
        pack_zeros(np.array([[16]]), 4)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("out", "columns", "group"), [(64, 96, 32), (40, 80, 32), (32, 32, -1), (8, 64, 128)])
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("v2", [True, False])
def test_stored_module(bits: int, out: int, columns: int, group: int, index: bool, v2: bool) -> None:
    """Values are those that were packed, headers say nothing against a true config, and rewriting changes nothing."""
    parts = gptq_parts(out, columns, bits, group, index=index, v2=v2)
    scheme = said("gptq", bits, group, format="gptq_v2" if v2 else "gptq", symmetric=False)
    module = module_of(parts, scheme, (out, columns))
    form = module.form
    assert (form.format, form.shape, form.missing, form.contradictions) == ("gptq", (out, columns), (), ())
    assert form.scheme is not None
    assert (form.scheme.num_bits, form.scheme.group_size) == (bits, group if group > 0 else None)
    size = group if group > 0 else columns
    codes, scales, zeros = quantize(random_weight(out, columns), bits, size, symmetric=False)
    assert np.array_equal(module.codes(), codes)
    assert np.array_equal(np.asarray(module.zeros()), zeros)
    expected = dequantize(codes, scales, zeros, group_of(columns, size))
    assert np.array_equal(module.dequantize(), expected)
    again = rewritten(module, codes=codes, scales=module.scales(), zeros=zeros)
    assert np.array_equal(again.dequantize(), expected)


def test_shuffled_groups() -> None:
    parts = gptq_parts(16, 64, index=True)
    order = np.random.default_rng(1).permutation(64)
    parts["g_idx"] = parts["g_idx"][order]
    module = module_of(parts, said("gptq", act_order="group"))
    index = module.group_index()
    assert index is not None and np.array_equal(index, order // 32)
    back = rewritten(module, group_index=np.sort(index))
    assert np.array_equal(np.asarray(back.group_index()), np.sort(index))


def form_of(parts: dict[str, TensorInfo], declared: Scheme | None, expected: tuple[int, int] | None = None) -> Form:
    """What the headers say."""
    return detect(parts, declared, expected)[1]


def header(
    out: int = 256, columns: int = 512, bits: int = 4, groups: int = 4, *, index: bool = True
) -> dict[str, TensorInfo]:
    """Headers of a healthy GPTQ module."""
    found = headers(
        qweight=("I32", (columns * bits // 32, out)),
        qzeros=("I32", (groups, out * bits // 32)),
        scales=("F16", (groups, out)),
        g_idx=("I32", (columns,)),
    )
    return found if index else {suffix: info for suffix, info in found.items() if suffix != "g_idx"}


def changed(parts: dict[str, TensorInfo], **new: tuple[str, tuple[int, ...]]) -> dict[str, TensorInfo]:
    """Some parts with another dtype and shape."""
    return {**parts, **headers(**new)}


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("wrong", [2, 3, 8])
def test_config_bits_unlike_the_stored(wrong: int, index: bool) -> None:
    form = form_of(header(index=index), said("gptq", wrong, 128))
    assert form.scheme is not None and form.scheme.num_bits == 4
    assert [item.about for item in form.contradictions] == ["num_bits"]
    assert (form.contradictions[0].expected, form.contradictions[0].found) == (str(wrong), "4")


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("wrong", [32, 64, 256, -1])
def test_config_group_size_unlike_the_stored(wrong: int, index: bool) -> None:
    (found,) = form_of(header(index=index), said("gptq", 4, wrong)).contradictions
    assert (found.about, found.found) == ("group_size", "128")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((4, 256), "I32"), ((4, 256), "I8"), ((1, 256), "I32"), ((256, 4), "I32"), ((4,), "I32"), ((4, 32), "F16")],
    ids=["unpacked", "unpacked bytes", "packed along groups", "out-major", "flat", "floats"],
)
def test_zero_points_in_another_form(shape: tuple[int, ...], dtype: str) -> None:
    (found,) = form_of(changed(header(), qzeros=(dtype, shape)), said("gptq", 4, 128)).contradictions
    assert (found.about, found.role, found.expected) == (
        "zero_point",
        "zero_point",
        f"{'I32 or U32 ' if shape == (4, 32) else ''}[4, 32] packed along out",
    )


@pytest.mark.parametrize("shape", [(256, 4), (256,), (4, 256, 1), ()])
def test_scales_of_another_shape(shape: tuple[int, ...]) -> None:
    form = form_of(changed(header(), scales=("F16", shape)), said("gptq", 4, 128))
    assert [(item.about, item.role) for item in form.contradictions] == [("shape", "scale")]
    assert form.format == "gptq"


def test_other_parts_of_a_wrong_kind() -> None:
    index = form_of(changed(header(), g_idx=("I32", (100,))), said("gptq", 4, 128))
    assert [(item.about, item.expected) for item in index.contradictions] == [("act_order", "[512]")]
    scales = form_of(changed(header(), scales=("I32", (4, 256))), said("gptq", 4, 128))
    assert [(item.about, item.role) for item in scales.contradictions] == [("dtype", "scale")]
    payload = form_of(changed(header(), qweight=("I32", (4, 4, 4))), said("gptq", 4, 128))
    assert (payload.format, payload.shape, [item.about for item in payload.contradictions]) == ("gptq", None, ["shape"])


@pytest.mark.parametrize("gone", ["scales", "qzeros", "g_idx"])
def test_a_part_that_is_missing(gone: str) -> None:
    parts = {suffix: info for suffix, info in header().items() if suffix != gone}
    form = form_of(parts, said("gptq", 4, 128, act_order="group"))
    role = {"scales": "scale", "qzeros": "zero_point", "g_idx": "g_idx"}[gone]
    assert (form.format, form.missing, form.shape, form.contradictions) == ("gptq", (role,), (256, 512), ())


def test_only_the_payload_is_left() -> None:
    form = form_of({"qweight": header()["qweight"]}, said("gptq", 4, 128), (256, 512))
    assert (form.format, form.missing, form.shape) == ("gptq", ("scale", "zero_point"), (256, 512))
    assert form_of({"qweight": header()["qweight"]}, None).format == "unknown"


def test_index_is_only_needed_where_the_config_says_so() -> None:
    assert not form_of(header(index=False), said("gptq", 4, 128)).missing
    assert form_of(header(index=False), said("gptq", 4, 128, act_order="group")).missing == ("g_idx",)


@settings(max_examples=300)
@given(st.integers(1, 64), st.integers(1, 300), st.sampled_from([2, 3, 4, 8]), st.sampled_from([-1, 8, 32, 64, 128]))
def test_healthy_headers_never_alarm(eighths: int, columns: int, bits: int, group: int) -> None:
    """Short last groups, groups longer than the row, inputs that fill no whole word, tiny matrices."""
    out = eighths * 8
    groups = -(-columns // group) if group > 0 else 1
    parts = headers(
        qweight=("I32", (-(-columns * bits // 32), out)),
        qzeros=("I32", (groups, -(-out * bits // 32))),
        scales=("F16", (groups, out)),
        g_idx=("I32", (columns,)),
    )
    for declared in (said("gptq", bits, group), None):
        form = form_of(parts, declared)
        assert form.format == "gptq"
        assert (form.shape, form.missing, form.contradictions) == ((out, columns), (), ())


@settings(max_examples=200)
@given(st.integers(1, 64), st.integers(1, 40), st.sampled_from([2, 4, 8]), st.sampled_from([-1, 32, 64, 128]))
def test_healthy_headers_without_index_never_alarm(eighths: int, words: int, bits: int, group: int) -> None:
    out, columns = eighths * 8, words * 32
    groups = -(-columns // group) if group > 0 else 1
    parts = headers(
        qweight=("I32", (columns * bits // 32, out)),
        qzeros=("I32", (groups, -(-out * bits // 32))),
        scales=("F16", (groups, out)),
    )
    form = form_of(parts, said("gptq", bits, group))
    assert (form.shape, form.missing, form.contradictions) == ((out, columns), (), ())

"""Which format owns a module, and that no header can make one of them raise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.interface import TensorInfo
from degarble.formats.awq import Awq
from degarble.formats.awq_gemv import AwqGemv
from degarble.formats.compressed_int import CompressedInt
from degarble.formats.compressed_pack import CompressedPack
from degarble.formats.detect import detect
from degarble.formats.gptq import Gptq
from degarble.formats.interface import WeightFormat
from degarble.formats.modelopt_int4 import ModelOptInt4
from degarble.formats.qweight import layout_of
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, info_of
from tests.formats.integer_modules import said

FORMATS: list[WeightFormat] = [Gptq(), Awq(), AwqGemv(), CompressedPack(), CompressedInt(), ModelOptInt4()]
SQUARE = headers(qweight=("I32", (32, 256)))


def test_an_empty_label_is_no_layout() -> None:
    assert layout_of({}, said("gptq")) == ("", 0)
    assert layout_of(SQUARE, None) == ("", 0)
    assert layout_of(SQUARE, said("awq", format="gemv")) == ("awq_gemv", 2)
    assert layout_of(SQUARE, Scheme(method="compressed-tensors")) == ("", 0)


def test_layouts_nobody_reads_stay_unknown() -> None:
    marlin = headers(qweight=("I32", (16, 512)), scales=("F16", (2, 256)))
    assert layout_of(marlin, said("gptq", format="marlin")) == ("", 0)
    assert layout_of(marlin, said("gptq", format="gptq")) == ("gptq", 2)
    halves = headers(qweight=("I16", (64, 1024)), scales=("F16", (8, 256)), qzeros=("F16", (8, 256)))
    assert detect(halves, said("awq", format="gemv_fast"), None)[1].format == "unknown"


@pytest.mark.parametrize("declared", [said("gptq"), said("awq"), said("awq", format="gemv"), None])
def test_words_in_another_order_do_not_hide_the_owner(declared: Scheme | None) -> None:
    """The zero points and the index contradict the scales: the scales are believed."""
    parts = headers(
        qweight=("I32", (32, 256)), scales=("F16", (2, 256)), qzeros=("I32", (2, 256)), g_idx=("I32", (32,))
    )
    assert layout_of(parts, declared) == ("gptq", 3)


def test_a_true_tie_goes_to_the_label() -> None:
    """GEMV with 256 inputs in groups of 32 has the shapes of GPTQ with groups of 8."""
    parts = headers(qweight=("I32", (32, 32)), qzeros=("I32", (32, 4)), scales=("F16", (32, 32)))
    assert layout_of(parts, said("awq", format="gemv")) == ("awq_gemv", 3)
    assert layout_of(parts, said("gptq")) == ("gptq", 3)
    assert layout_of(parts, None) == ("", 0)


DTYPES = ["I32", "U32", "I8", "U8", "I64", "F16", "BF16", "F32", "F8_E4M3", "F4", "BOOL", "nonsense"]
AXES = st.one_of(st.integers(-1, 9), st.sampled_from([16, 32, 64, 128, 256, 512, 2**40, 2**63]))
SUFFIXES = sorted({suffix for fmt in FORMATS for suffix in fmt.roles} | {"SCB", "meta", "weight_scale_2"})


@st.composite
def random_parts(draw: st.DrawFn) -> dict[str, TensorInfo]:
    """Any parts of any dtype and shape."""
    suffixes = draw(st.lists(st.sampled_from(SUFFIXES), min_size=1, max_size=6, unique=True))
    return {
        suffix: info_of(f"m.{suffix}", draw(st.sampled_from(DTYPES)), tuple(draw(st.lists(AXES, max_size=4))))
        for suffix in suffixes
    }


SCHEMES = st.one_of(
    st.none(),
    st.builds(
        Scheme,
        method=st.sampled_from(["gptq", "awq", "compressed-tensors", "modelopt", "fp8"]),
        format=st.sampled_from([None, "gemv", "gptq_v2", "pack-quantized", "marlin"]),
        type=st.sampled_from([None, "int", "float"]),
        num_bits=st.sampled_from([None, 1, 2, 3, 4, 8, 16, 64]),
        strategy=st.sampled_from([None, "tensor", "channel", "group", "block"]),
        group_size=st.sampled_from([None, 1, 7, 32, 128, 2**31]),
        symmetric=st.sampled_from([None, True, False]),
        act_order=st.sampled_from([None, "group", "weight"]),
        activations=st.sampled_from([None, "static", "dynamic"]),
    ),
)
EXPECTED = st.one_of(st.none(), st.lists(st.integers(0, 600), max_size=3).map(tuple))


@settings(max_examples=1500)
@given(random_parts(), SCHEMES, EXPECTED)
def test_no_header_makes_a_format_raise(
    parts: dict[str, TensorInfo], declared: Scheme | None, expected: tuple[int, ...] | None
) -> None:
    """Every format answers for whatever it might claim, claimed or not, and at most one is surest."""
    for fmt in FORMATS:
        strength = fmt.claim(parts, declared)
        assert 0 <= strength <= 3
        if "payload" in fmt.by_role(parts):
            form = fmt.form(parts, declared, expected)
            assert form.format == fmt.name
            assert set(form.missing).isdisjoint(form.roles)
    assert sum(fmt.claim(parts, declared) == 3 for fmt in FORMATS if "qweight" in fmt.roles) <= 1
    detect(parts, declared, expected)

"""No headers, however wrong, make a format raise; and no module has two owners by accident."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.interface import TensorInfo
from degarble.formats.detect import detect, formats
from degarble.formats.interface import PAYLOAD, Form
from degarble.formats.scheme import Scheme

OURS = (
    "fp8", "fp8_block", "compressed_fp8_block", "mxfp8", "nvfp4", "modelopt_nvfp4", "mxfp4", "deepseek_mxfp4",
    "quark_mxfp4", "mxfp4_experts", "bitsandbytes_4bit", "bitsandbytes_int8", "torchao", "quanto", "mlx", "exl2",
    "exl3", "gguf",
)  # fmt: skip
ABOUT = {"num_bits", "group_size", "block_grid", "zero_point", "layout", "dtype", "shape"}
SUFFIXES = sorted({suffix for name in OURS for suffix in formats()[name].roles})
DTYPES = [
    "F8_E4M3", "F8_E5M2", "F8_E8M0", "U8", "I8", "I16", "U32", "I32", "F32", "BF16", "F4", "BOOL", "nonsense",
    "GGUF:Q4_K", "GGUF:Q8_0", "GGUF:type 99",
]  # fmt: skip
AXES = st.one_of(st.integers(-2, 5), st.sampled_from([16, 32, 64, 128, 256, 576, 2**62]))
SHAPES = st.lists(AXES, max_size=4).map(tuple)
SCHEMES = st.builds(
    Scheme,
    method=st.sampled_from(["fp8", "compressed-tensors", "modelopt", "bitsandbytes", "mlx", "mxfp4", "gptq", "?"]),
    format=st.sampled_from([None, "nvfp4-pack-quantized", "mxfp4-pack-quantized", "nf4-nested", "fp4", ""]),
    type=st.sampled_from([None, "int", "float", "codebook"]),
    num_bits=st.sampled_from([None, 0, 2, 3, 4, 8, 99]),
    strategy=st.sampled_from([None, "tensor", "channel", "group", "block", "tensor_group"]),
    group_size=st.sampled_from([None, 0, 16, 32, 64, 128, 10**9]),
    block_shape=st.sampled_from([None, (128, 128), (1, 32), (0, 0), (-1, 5), (10**9, 1)]),
    activations=st.sampled_from([None, "dynamic", "static", "local"]),
)


@st.composite
def headers(draw: st.DrawFn) -> dict[str, TensorInfo]:
    chosen = draw(st.lists(st.sampled_from(SUFFIXES), min_size=1, max_size=5, unique=True))
    return {
        suffix: TensorInfo(f"m.{suffix}", draw(st.sampled_from(DTYPES)), draw(SHAPES), "f", 0, draw(st.integers(0, 99)))
        for suffix in chosen
    }


@settings(deadline=None, max_examples=1500)
@given(headers(), st.none() | SCHEMES, st.none() | SHAPES)
def test_forms_never_raise(
    parts: dict[str, TensorInfo], declared: Scheme | None, expected: tuple[int, ...] | None
) -> None:
    claims = {name: formats()[name].claim(parts, declared) for name in OURS}
    for name, strength in claims.items():
        assert strength in (0, 1, 2, 3)
        if strength:
            sound(formats()[name].form(parts, declared, expected), parts)
    detect(parts, declared, expected)


def sound(form: Form, parts: dict[str, TensorInfo]) -> None:
    """What every reader of a form relies on."""
    assert PAYLOAD in form.roles
    assert set(form.roles.values()) <= set(parts)
    assert not set(form.missing) & set(form.roles)
    assert {item.about for item in form.contradictions} <= ABOUT
    assert all(item.role in form.roles for item in form.contradictions if item.about not in ("group_size", "num_bits"))
    hash(form.scheme)


FLOATS = [name for name in OURS if name not in ("exl2", "exl3", "gguf")]


@settings(deadline=None, max_examples=500)
@given(headers(), st.none() | SCHEMES)
def test_a_lone_family_has_one_owner(parts: dict[str, TensorInfo], declared: Scheme | None) -> None:
    """Where only one payload is there, at most one of these formats claims it with certainty."""
    payloads = [suffix for suffix in parts if any(formats()[name].roles.get(suffix) == PAYLOAD for name in OURS)]
    if len(payloads) != 1 or "weight" not in payloads:
        return
    sure = [name for name in FLOATS if formats()[name].claim(parts, declared) == 3]
    mixed = {"weight_scale_2", "weight_scale_inv", "weight_scale", "SCB", "biases", "qbiases", "scales"}
    if sum(suffix in mixed or suffix.startswith("weight.") for suffix in parts) <= 1:
        assert len(sure) <= 1

"""pack-quantized against compressed-tensors itself, and its headers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import dequantize, group_of, quantize
from degarble.formats.compressed_pack import pack_zeros, unpack_zeros
from degarble.formats.detect import detect
from degarble.formats.packing import pack_words, unpack_words
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import headers, module_of, rewritten
from tests.formats.integer_modules import pack_parts, random_weight, said

CT = "compressed-tensors"


@given(st.integers(2, 8), st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_zero_points(bits: int, out: int, groups: int, seed: int) -> None:
    zeros = np.random.default_rng(seed).integers(0, 1 << bits, (out, groups)).astype(np.int32)
    packed = pack_zeros(zeros, bits)
    assert packed.shape == (-(-out * bits // 32), groups)
    assert np.array_equal(unpack_zeros(packed, bits, out), zeros)


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize(("out", "columns", "group"), [(48, 96, 32), (10, 70, 32), (7, 33, -1), (8, 64, 128)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_stored_module(bits: int, out: int, columns: int, group: int, symmetric: bool) -> None:
    """`in` comes from weight_shape where whole words would round it up."""
    scheme = said(CT, bits, group, format="pack-quantized", symmetric=symmetric)
    size = group if group > 0 else columns
    codes, scales, zeros = quantize(random_weight(out, columns), bits, size, symmetric=symmetric)
    for expected in ((out, columns), None):
        module = module_of(pack_parts(out, columns, bits, group, symmetric=symmetric), scheme, expected)
        form = module.form
        assert (form.format, form.missing, form.contradictions) == ("compressed_pack", (), ())
        assert expected is None or form.shape == expected
        assert np.array_equal(module.codes(), codes)
        assert np.array_equal(np.asarray(module.zeros()), zeros)
        assert np.array_equal(module.dequantize(), dequantize(codes, scales, zeros, group_of(columns, size)))
        new = {"codes": codes, "scales": module.scales()} | ({} if symmetric else {"zeros": zeros})
        assert np.array_equal(rewritten(module, **new).dequantize(), module.dequantize())


def test_stacked_experts() -> None:
    """[experts, out, in], each expert a matrix of its own."""
    one, two = (pack_parts(10, 64, symmetric=False, seed=seed) for seed in (1, 2))
    stacked = {suffix: np.stack([one[suffix], two[suffix]]) for suffix in one if suffix != "weight_shape"}
    stacked["weight_shape"] = np.array([2, 10, 64])
    scheme = said(CT, symmetric=False)
    module = module_of(stacked, scheme)
    assert (module.form.shape, module.form.contradictions) == ((2, 10, 64), ())
    each = [module_of(parts, scheme).dequantize() for parts in (one, two)]
    assert np.array_equal(module.dequantize(), np.stack(each))
    zeros = module.zeros()
    assert zeros is not None
    assert np.array_equal(rewritten(module, codes=module.codes(), zeros=zeros).dequantize(), module.dequantize())


def test_one_scale_for_the_tensor() -> None:
    parts = {**pack_parts(16, 64, group=-1), "weight_scale": np.array([0.5], np.float32)}
    module = module_of(parts, Scheme(method=CT, type="int", num_bits=4, strategy="tensor"))
    assert module.form.contradictions == ()
    assert module.scales().shape == (16, 1)
    assert np.array_equal(module.dequantize(), (module.codes().astype(np.float32) - 8) / 2)
    assert rewritten(module, scales=np.full((16, 1), 0.25, np.float32)).array("scale").tolist() == [0.25]
    with pytest.raises(ValueError, match="one scale is stored"):
        module.replace(scales=np.arange(16, dtype=np.float32)[:, None])
    declared_groups = module_of(parts, said(CT, group=32)).form
    assert [item.about for item in declared_groups.contradictions] == ["group_size"]


def test_group_order_is_read() -> None:
    parts = {**pack_parts(16, 64), "weight_g_idx": (np.arange(64) % 2).astype(np.int32)}
    module = module_of(parts, said(CT, act_order="group"))
    index = module.group_index()
    assert index is not None and index.tolist() == [0, 1] * 32
    assert rewritten(module, group_index=index[::-1]).array("g_idx").tolist() == [1, 0] * 32
    without = module_of(pack_parts(16, 64), said(CT, act_order="group")).form
    assert without.missing == ("g_idx",)
    assert not module_of(pack_parts(16, 64), said(CT, act_order="weight")).form.missing


def test_zero_points_of_old_versions() -> None:
    """Unpacked int8: read all the same, and reported."""
    parts = pack_parts(16, 64, symmetric=False)
    packed = module_of(parts, said(CT, symmetric=False))
    zeros = packed.zeros()
    assert zeros is not None
    old = module_of({**parts, "weight_zero_point": (zeros - 8).astype(np.int8)}, said(CT, symmetric=False))
    assert [item.about for item in old.form.contradictions] == ["zero_point"]
    assert np.array_equal(old.dequantize(), packed.dequantize())
    assert np.array_equal(rewritten(old, zeros=zeros).dequantize(), packed.dequantize())


HEALTHY = headers(
    weight_packed=("I32", (256, 64)),
    weight_scale=("BF16", (256, 4)),
    weight_zero_point=("I32", (32, 4)),
    weight_shape=("I64", (2,)),
)
DECLARED = said(CT, 4, 128, format="pack-quantized", symmetric=False)


@pytest.mark.parametrize("wrong", [2, 3, 5, 8])
def test_config_bits_unlike_the_stored(wrong: int) -> None:
    """Zero points tell the width alone; without them the architecture does."""
    (found,) = detect(HEALTHY, said(CT, wrong, 128, symmetric=False), None)[1].contradictions
    assert (found.about, found.expected, found.found) == ("num_bits", str(wrong), "4")
    symmetric = {suffix: info for suffix, info in HEALTHY.items() if suffix != "weight_zero_point"}
    (found,) = detect(symmetric, said(CT, wrong, 128), (256, 512))[1].contradictions
    assert (found.about, found.found) == ("num_bits", "4")
    if wrong != 5:  # 404 to 409 inputs of 5 bits would have as many words and groups
        assert detect(symmetric, said(CT, wrong, 128), None)[1].contradictions


@pytest.mark.parametrize("wrong", [32, 64, 256, -1])
def test_config_group_size_unlike_the_stored(wrong: int) -> None:
    (found,) = detect(HEALTHY, said(CT, 4, wrong, symmetric=False), None)[1].contradictions
    assert (found.about, found.found) == ("group_size", "128")


@pytest.mark.parametrize(
    ("dtype", "shape"), [("I8", (256, 4)), ("I32", (256, 4)), ("I32", (256, 1)), ("I32", (4, 32)), ("I32", (32,))]
)
def test_zero_points_in_another_form(dtype: str, shape: tuple[int, ...]) -> None:
    form = detect({**HEALTHY, **headers(weight_zero_point=(dtype, shape))}, DECLARED, (256, 512))[1]
    assert (form.format, [item.about for item in form.contradictions]) == ("compressed_pack", ["zero_point"])


@pytest.mark.parametrize("shape", [(4, 256), (256,), (256, 4, 1), (2,)])
def test_scales_of_another_shape(shape: tuple[int, ...]) -> None:
    form = detect({**HEALTHY, **headers(weight_scale=("BF16", shape))}, DECLARED, None)[1]
    assert ("shape", "scale") in [(item.about, item.role) for item in form.contradictions]


@pytest.mark.parametrize("gone", ["weight_scale", "weight_shape", "weight_zero_point"])
def test_a_part_that_is_missing(gone: str) -> None:
    parts = {suffix: info for suffix, info in HEALTHY.items() if suffix != gone}
    form = detect(parts, DECLARED, None)[1]
    role = {"weight_scale": "scale", "weight_shape": "shape", "weight_zero_point": "zero_point"}[gone]
    assert (form.format, form.missing, form.contradictions) == ("compressed_pack", (role,), ())


def test_who_claims() -> None:
    alone = {"weight_packed": HEALTHY["weight_packed"]}
    assert detect(alone, DECLARED, None)[1].missing == ("scale", "shape", "zero_point")
    assert detect(alone, None, None)[1].format == "compressed_pack"
    sparse = {**alone, **headers(meta=("I16", (4, 4)))}
    assert detect(sparse, said(CT, format="marlin-24"), None)[1].format == "unknown"
    label = detect(HEALTHY, said(CT, 4, 128, format="int-quantized", symmetric=False), None)[1]
    assert [(item.about, item.found) for item in label.contradictions] == [("layout", "pack-quantized")]
    awq = detect(HEALTHY, said("awq", 4, 128, symmetric=False), None)[1]
    assert [item.about for item in awq.contradictions] == ["layout"]
    floats = {**HEALTHY, **headers(weight_packed=("F16", (256, 64)))}
    assert [item.about for item in detect(floats, DECLARED, None)[1].contradictions] == ["shape"]


@settings(max_examples=200)
@given(
    st.integers(1, 70), st.integers(1, 300), st.integers(2, 8), st.sampled_from([-1, 16, 32, 64, 128]), st.booleans()
)
def test_healthy_headers_never_alarm(out: int, columns: int, bits: int, group: int, symmetric: bool) -> None:
    groups = -(-columns // group) if group > 0 else 1
    parts = headers(
        weight_packed=("I32", (out, -(-columns * bits // 32))),
        weight_scale=("BF16", (out, groups)),
        weight_shape=("I64", (2,)),
    )
    if not symmetric:
        parts |= headers(weight_zero_point=("I32", (-(-out * bits // 32), groups)))
    form = detect(parts, said(CT, bits, group, symmetric=symmetric), (out, columns))[1]
    assert (form.format, form.shape, form.missing, form.contradictions) == (
        "compressed_pack",
        (out, columns),
        (),
        (),
    )


def signed(codes: Array, bits: int) -> Array:
    """The tool's own codes: ours are in excess 2**(bits - 1)."""
    return (codes.astype(np.int16) - (1 << bits - 1)).astype(np.int8)


@pytest.mark.engine
@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("columns", [1, 7, 32, 33, 100])
def test_words_are_those_of_compressed_tensors(bits: int, columns: int) -> None:
    torch = pytest.importorskip("torch")
    helpers = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (9, columns), np.uint8)
    theirs = torch.from_numpy(signed(codes, bits))
    packed = helpers.pack_to_int32(theirs, bits)
    assert np.array_equal(pack_words(codes, bits), packed.numpy())
    assert np.array_equal(signed(unpack_words(packed.numpy(), bits, columns), bits), theirs.numpy())
    assert np.array_equal(pack_zeros(codes, bits), helpers.pack_to_int32(theirs, bits, packed_dim=0).numpy())
    ours = torch.from_numpy(pack_words(codes, bits))
    assert np.array_equal(helpers.unpack_from_int32(ours, bits, theirs.shape).numpy(), theirs.numpy())


@pytest.mark.engine
@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("group", [32, -1])
def test_values_are_those_of_compressed_tensors(bits: int, symmetric: bool, group: int) -> None:
    """What the tool decompresses from our tensors is what we read from them."""
    torch = pytest.importorskip("torch")
    quantization = pytest.importorskip("compressed_tensors.quantization")
    compressors = pytest.importorskip("compressed_tensors.compressors.pack_quantized.base")
    parts = pack_parts(24, 96, bits, group, symmetric=symmetric)
    parts["weight_scale"] = parts["weight_scale"].astype(np.float32)
    args = quantization.QuantizationArgs(
        num_bits=bits,
        type="int",
        symmetric=symmetric,
        strategy="group" if group > 0 else "channel",
        group_size=group if group > 0 else None,
    )
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=args)
    state = {suffix: torch.from_numpy(array) for suffix, array in parts.items()}
    theirs = compressors.PackedQuantizationCompressor.decompress(state, scheme)["weight"].numpy()
    ours = module_of(parts, said(CT, bits, group, symmetric=symmetric)).dequantize()
    assert np.array_equal(ours, theirs)

"""bitsandbytes 4-bit: codebooks, double quantisation, odd shapes, hostile states. Values: test_float_golden.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from degarble.formats import bitsandbytes as bnb
from degarble.formats.detect import detect
from degarble.formats.interface import StoredModule
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import golden_modules, headers, info_of, module_of, rewritten

MAP = np.linspace(-1, 1, 16, dtype=np.float32)
STATE = "weight.quant_state.bitsandbytes__nf4"
NF4 = Scheme(method="bitsandbytes", format="nf4", type="codebook", num_bits=4)
RNG = np.random.default_rng(29)


def stored(weight: np.ndarray, state: Any = None, blocksize: int = 64) -> StoredModule:
    codes, absmax = bnb.quantize(weight, MAP, blocksize)
    state = {"shape": list(weight.shape), "blocksize": blocksize, "quant_type": "nf4"} if state is None else state
    raw = state if isinstance(state, bytes) else json.dumps(state).encode()
    parts = {
        "weight": bnb.pack(codes).reshape(-1, 1),
        "weight.absmax": absmax,
        "weight.quant_map": MAP,
        STATE: np.frombuffer(raw, np.uint8),
    }
    return module_of(parts, NF4)


@settings(deadline=None)
@given(arrays(np.uint8, array_shapes(min_dims=1, max_dims=2, max_side=9), elements=st.integers(0, 15)))
def test_packing_keeps_every_code(codes: np.ndarray) -> None:
    assert np.array_equal(bnb.unpack(bnb.pack(codes))[: codes.size], codes.reshape(-1))


def test_high_nibble_comes_first() -> None:
    assert bnb.unpack(np.array([0x21], np.uint8)).tolist() == [2, 1]
    with pytest.raises(ValueError, match="found 0"):
        bnb.pack(np.array([0, 16]))


@pytest.mark.parametrize("shape", [(8, 128), (3, 40), (5, 7)])
def test_quantised_values_are_near(shape: Any) -> None:
    weight = RNG.normal(0, 0.02, shape).astype(np.float32)
    module = stored(weight)
    assert module.form.format == "bitsandbytes_4bit" and module.form.contradictions == ()
    assert np.abs(module.dequantize() - weight).max() <= np.abs(weight).max() / 15 * 1.01
    aligned = shape[1] % 64 == 0
    assert module.scales().shape == ((shape[0], shape[1] // 64) if aligned else (1, -(-shape[0] * shape[1] // 64)))
    assert (module.group_index() is not None) == aligned
    again = rewritten(module, codes=module.codes(), scales=module.scales() * 2)
    np.testing.assert_array_equal(again.dequantize(), module.dequantize() * 2)


def test_any_storage_dtype(golden: Path) -> None:
    module = stored(RNG.normal(size=(8, 128)).astype(np.float32))
    packed = module.array("payload").reshape(-1).view(np.float32)
    parts = {suffix: module.reader.read(info) for suffix, info in module.parts.items()}
    wide = module_of({**parts, "weight": packed.reshape(-1, 1)}, NF4)
    assert wide.form.format == "bitsandbytes_4bit"
    np.testing.assert_array_equal(wide.dequantize(), module.dequantize())
    again = rewritten(wide, codes=wide.codes()[::-1])
    np.testing.assert_array_equal(again.codes(), wide.codes()[::-1])


def test_double_quantisation_takes_new_scales(golden: Path) -> None:
    module = next(m for m in golden_modules(golden / "bitsandbytes-nf4-dq", NF4) if m.form.is_quantized)
    assert module.form.scheme is not None and module.form.scheme.format == "nf4-nested"
    shifted = np.roll(module.scales(), 1, axis=1)
    again = rewritten(module, scales=shifted)
    spread = np.abs(module.array("nested_scale")).max() / 127
    assert np.abs(again.scales() - shifted).max() <= spread


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (b"\xff{", "not a quant state"),
        ([1], "not a quant state"),
        ({"shape": [2], "blocksize": "x"}, "not a quant state"),
        ({"shape": [], "blocksize": 64}, "impossible shape"),
        ({"shape": [-8, -128], "blocksize": 64}, "impossible shape"),
        ({"shape": [8, 128], "blocksize": 0}, "impossible shape"),
        ({"shape": [9, 128], "blocksize": 64}, "do not fill"),
        ({"shape": [10**9, 10**9], "blocksize": 64}, "do not fill"),
        ({"shape": [8, 128], "blocksize": 32}, "cannot cover"),
    ],
)
def test_hostile_quant_states(state: Any, message: str) -> None:
    module = stored(np.ones((8, 128), np.float32), state)
    with pytest.raises(ValueError, match=message):
        module.dequantize()


def test_broken_tables() -> None:
    module = stored(np.ones((8, 128), np.float32))
    parts = {suffix: module.reader.read(info) for suffix, info in module.parts.items()}
    short = module_of({**parts, "weight.quant_map": MAP[:15]}, NF4)
    assert [item.about for item in short.form.contradictions] == ["shape"]
    with pytest.raises(ValueError, match="15 values, 16 are needed"):
        short.dequantize()
    del parts[STATE]
    with pytest.raises(ValueError, match="no quant state"):
        module_of(parts, NF4).dequantize()


PACKED = ("U8", (16384, 1))
PARTS = {
    "weight": PACKED,
    "weight__absmax": ("F32", (512,)),
    "weight__quant_map": ("F32", (16,)),
    "weight__quant_state__bitsandbytes__nf4": ("U8", (80,)),
}


def parts_of(**changes: Any) -> dict[str, Any]:
    spec = {name: value for name, value in {**PARTS, **changes}.items() if value is not None}
    found = headers(**{name: value for name, value in spec.items() if "quant_state" not in name})
    if "weight__quant_state__bitsandbytes__nf4" in spec:
        found[STATE] = info_of("m." + STATE, "U8", (80,))
    found["weight"] = info_of("m.weight", spec["weight"][0], spec["weight"][1], 16384)
    return found


@pytest.mark.parametrize(
    ("changes", "declared", "expected", "missing", "about"),
    [
        ({}, NF4, (128, 256), (), []),
        ({}, NF4, (128, 250), (), ["shape"]),
        ({"weight__absmax": None}, NF4, None, ("scale",), []),
        ({"weight__quant_map": None}, NF4, None, ("codebook",), []),
        ({"weight__quant_state__bitsandbytes__nf4": None}, NF4, None, ("quant_state",), []),
        ({"weight__absmax": ("U8", (512,))}, NF4, None, ("nested_scale", "nested_codebook"), []),
        (
            {
                "weight__absmax": ("U8", (512,)),
                "weight__nested_absmax": ("F32", (3,)),
                "weight__nested_quant_map": ("F32", (256,)),
            },
            NF4,
            None,
            (),
            ["group_size"],
        ),
        ({"weight__absmax": ("F32", (500,))}, NF4, None, (), ["group_size"]),
        ({}, Scheme(method="bitsandbytes", format="fp4", type="codebook", num_bits=4), None, (), ["dtype"]),
        ({}, Scheme(method="bitsandbytes", type="int", num_bits=8), None, (), ["num_bits"]),
    ],
)
def test_headers(changes: Any, declared: Any, expected: Any, missing: Any, about: Any) -> None:
    _, form = detect(parts_of(**changes), declared, expected)
    assert (form.format, form.missing) == ("bitsandbytes_4bit", missing)
    assert [item.about for item in form.contradictions] == about
    assert form.shape == (expected if expected == (128, 256) else None)


def test_too_few_nested_scales() -> None:
    state = json.dumps({"shape": [10, 128], "blocksize": 64, "nested_blocksize": 16}).encode()
    parts: dict[str, np.ndarray] = {
        "weight": np.zeros((640, 1), np.uint8),
        "weight.absmax": np.zeros(20, np.uint8),
        "weight.quant_map": MAP,
        "weight.nested_absmax": np.ones(1, np.float32),
        "weight.nested_quant_map": np.linspace(-1, 1, 256, dtype=np.float32),
        STATE: np.frombuffer(state, np.uint8),
    }
    with pytest.raises(ValueError, match="1 nested scales cannot cover 20 blocks"):
        module_of(parts, NF4).dequantize()


def test_alone_it_is_known_by_the_config_only() -> None:
    alone = headers(weight=PACKED)
    nested = Scheme(method="bitsandbytes", format="nf4-nested", type="codebook", num_bits=4)
    missing = ("scale", "codebook", "quant_state", "nested_scale", "nested_codebook")
    assert detect(alone, nested, None)[1].missing == missing
    assert detect(alone, None, None)[1].format == "unknown"

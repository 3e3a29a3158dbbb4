"""Every floating-point and codebook format against checkpoints that the field's own tools wrote and read back."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from degarble.evidence.declaration import methods
from degarble.formats.scheme import Scheme
from tests.formats.in_memory import agrees, check_golden, golden_modules, module_of, oracle, rewritten

CT = "compressed-tensors"
CASES = [
    ("llm-compressor-fp8-dynamic", Scheme(method=CT, type="float", num_bits=8, strategy="channel"), "fp8"),
    (
        "llm-compressor-fp8-static-kvcache",
        Scheme(method=CT, type="float", num_bits=8, strategy="tensor", activations="static"),
        "fp8",
    ),
    (
        "llm-compressor-fp8-block",
        Scheme(method=CT, type="float", num_bits=8, strategy="block", block_shape=(128, 128)),
        "compressed_fp8_block",
    ),
    (
        "llm-compressor-nvfp4",
        Scheme(method=CT, type="float", num_bits=4, strategy="tensor_group", group_size=16, activations="local"),
        "nvfp4",
    ),
    ("llm-compressor-mxfp4", Scheme(method=CT, type="float", num_bits=4, strategy="group", group_size=32), "mxfp4"),
    (
        "modelopt-nvfp4",
        Scheme(method="modelopt", type="float", num_bits=4, strategy="group", group_size=16, activations="static"),
        "modelopt_nvfp4",
    ),
    ("own-deepseek-fp8-block-576", None, "fp8_block"),
    ("bitsandbytes-nf4", None, "bitsandbytes_4bit"),
    ("bitsandbytes-nf4-dq", None, "bitsandbytes_4bit"),
    ("quanto-int8", None, "quanto"),
    ("torchao-int8wo", None, "torchao"),
]


def declared_by(folder: Path) -> Scheme | None:
    """The scheme that the checkpoint's own config declares, read by this package's method files."""
    if (folder / "quanto_qmap.json").exists():
        raw = json.loads((folder / "quanto_qmap.json").read_bytes())
        return methods()["quanto"].declare(raw, file="quanto_qmap.json", key="").scheme_for(next(iter(raw)))
    raw = json.loads((folder / "config.json").read_bytes())["quantization_config"]
    method = methods()[raw["quant_method"]]
    return method.declare(raw, file="config.json", key="quantization_config").default


@pytest.mark.parametrize(("name", "declared", "fmt"), CASES)
def test_bit_exact(golden: Path, name: str, declared: Scheme | None, fmt: str) -> None:
    folder = golden / name
    scheme = declared or declared_by(folder)
    assert scheme is not None
    count = check_golden(folder, scheme, fmt, expected=True)
    assert count == (7 if name.startswith("own") else 14)
    assert check_golden(folder, None, fmt) == count  # the headers alone tell the format


@pytest.mark.parametrize(("name", "declared", "fmt"), CASES)
def test_replace_reads_back(golden: Path, name: str, declared: Scheme | None, fmt: str) -> None:
    folder = golden / name
    scheme = declared or declared_by(folder)
    module = next(module for module in golden_modules(folder, scheme) if module.form.is_quantized)
    codes, scales = module.codes(), module.scales()
    again = rewritten(module, codes=codes, scales=scales)
    assert np.array_equal(again.codes(), codes)
    np.testing.assert_array_equal(again.scales(), scales)
    assert agrees(again, oracle(folder)[f"{module.name}.weight"])


def test_modelopt_fp8(golden: Path) -> None:
    """ModelOpt's oracle is its fake quantisation; its export rounds otherwise (weight / scale in bf16 first).

    The export is read exactly: its codes are those of the base weights, and values differ by at most one code step.
    """
    base = {module.name: module for module in golden_modules(golden / "base-bf16", None)}
    scheme = Scheme(method="modelopt", type="float", num_bits=8, strategy="tensor", activations="static")
    count = 0
    for module in golden_modules(golden / "modelopt-fp8", scheme):
        if not module.form.is_quantized:
            continue
        form = module.form
        assert (form.format, form.missing, form.contradictions) == ("fp8", (), ())
        weight, scale = base[module.name].dequantize(), module.scales()
        rounded = (weight / scale).astype(ml_dtypes.bfloat16).astype(ml_dtypes.float8_e4m3fn)
        assert np.array_equal(module.codes(), rounded.view(np.uint8))
        nearest = (weight / scale).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        steps = np.abs((module.codes() & 127).astype(int) - (nearest & 127).astype(int))
        assert steps.max() <= 1
        again = rewritten(module, codes=module.codes(), scales=scale)
        assert np.array_equal(again.dequantize(), module.dequantize())
        count += 1
    assert count == 14


def test_modelopt_fake_quantisation_is_reproduced(golden: Path) -> None:
    """The oracle itself: base weights through e4m3 in fp32, times the reciprocal, equals ModelOpt's hash."""
    folder = golden / "modelopt-fp8"
    base = {module.name: module for module in golden_modules(golden / "base-bf16", None)}
    for module in golden_modules(folder, None):
        if module.form.is_quantized:
            weight = base[module.name].dequantize()
            scale = np.float32(448) / np.abs(weight).max()
            codes = (weight * scale).astype(ml_dtypes.float8_e4m3fn)
            faked = module_of({"weight": codes, "weight_scale": np.array([1 / scale], np.float32)})
            assert agrees(faked, oracle(folder)[f"{module.name}.weight"])

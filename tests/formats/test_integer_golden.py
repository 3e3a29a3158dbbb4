"""Every integer format against checkpoints that the field's own tools wrote and read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import dequantize
from degarble.formats.interface import StoredModule
from degarble.formats.scheme import Scheme
from degarble.methods.awq import AwqMethod
from degarble.methods.compressed_tensors import CompressedTensorsMethod
from degarble.methods.gptq import GptqMethod
from degarble.methods.interface import Declaration, Method
from tests.formats.in_memory import TOOL_DTYPES, agrees, golden_modules, oracle, rewritten

METHODS: dict[str, Method] = {
    "gptq": GptqMethod(),
    "awq": AwqMethod(),
    "compressed-tensors": CompressedTensorsMethod(),
}
CASES = {
    "gptqmodel-gptq-sym-g128": "gptq",
    "gptqmodel-gptq-asym-actorder-g64": "gptq",
    "autoawq-gemm-g128": "awq",
    "gptqmodel-awq-gemm-g128": "awq",
    "auto-round-awq-w4-asym-g128": "awq",
    "llm-compressor-w4a16-gptq-sym-g128": "compressed_pack",
    "llm-compressor-w4a16-gptq-asym-g128": "compressed_pack",
    "llm-compressor-w4a16-gptq-actorder-weight-g64": "compressed_pack",
    "llm-compressor-w4a16-awq-asym-g128": "compressed_pack",
    "llm-compressor-w8a8-int8": "compressed_int",
}
MOE = {
    "moe-deepseekv3-llmc-w4a16-g64": ("mlp.experts", 28),
    "moe-mixtral-llmc-w4a16-g64": ("block_sparse_moe.experts", 17),
    "moe-qwen3moe-llmc-w4a16-g64": ("mlp.experts", 21),
}


def declaration(folder: Path) -> Declaration:
    """What the checkpoint's own config says."""
    raw = json.loads((folder / "config.json").read_bytes())["quantization_config"]
    return METHODS[raw["quant_method"]].declare(raw, file="config.json", key="quantization_config")


def default(folder: Path) -> Scheme:
    """The scheme of its linears."""
    scheme = declaration(folder).default
    assert scheme is not None
    return scheme


def is_exact(module: StoredModule, entry: Mapping[str, Any]) -> bool:
    """Whether our arithmetic gives the tool's values.

    GPTQModel casts fp16 scales to the model's bfloat16 before it multiplies; then so does the comparison.
    """
    if agrees(module, entry):
        return True
    dtype = TOOL_DTYPES[entry["tool_dtype"]]
    scales, index = module.scales().astype(dtype).astype(np.float32), module.group_index()
    assert index is not None
    values = np.ascontiguousarray(dequantize(module.codes(), scales, module.zeros(), index).astype(dtype).astype("<f4"))
    return bool(hashlib.sha256(values.tobytes()).hexdigest() == entry["sha256_fp32"])


@pytest.mark.parametrize(("name", "fmt"), CASES.items())
@pytest.mark.parametrize("architecture_known", [True, False])
def test_bit_exact(golden: Path, name: str, fmt: str, architecture_known: bool) -> None:
    folder, count = golden / name, 0
    for module in golden_modules(folder, default(folder), architecture_known):
        if module.form.is_quantized:
            form = module.form
            assert (form.format, form.missing, form.orphaned, form.contradictions) == (fmt, (), (), ()), module.name
            assert is_exact(module, oracle(folder)[f"{module.name}.weight"]), module.name
            count += 1
    assert count == 14


@pytest.mark.parametrize(("name", "fmt"), CASES.items())
def test_headers_alone_tell_the_format(golden: Path, name: str, fmt: str) -> None:
    found = [module.form for module in golden_modules(golden / name, None) if module.form.is_quantized]
    assert [form.format for form in found] == [fmt] * 14
    assert not any(form.contradictions or form.missing or form.orphaned for form in found)


@pytest.mark.parametrize(("name", "where"), MOE.items())
def test_experts(golden: Path, name: str, where: tuple[str, int]) -> None:
    """Transformers fuses routed experts, so the oracle lacks them: of those, nearly every group has to reach an end."""
    folder, (stack, in_oracle) = golden / name, where
    values, exact, experts = oracle(folder), 0, 0
    for module in golden_modules(folder, default(folder)):
        form = module.form
        if not form.is_quantized:
            continue
        assert (form.format, form.missing, form.orphaned, form.contradictions) == ("compressed_pack", (), (), ())
        if f"{module.name}.weight" in values:
            assert agrees(module, values[f"{module.name}.weight"]), module.name
            exact += 1
        else:
            assert f".{stack}." in module.name
            assert module.dequantize().shape == form.shape
            groups = np.abs(module.codes().astype(int) - 8).reshape(*module.scales().shape, -1).max(axis=-1)
            assert np.mean(groups >= 7) > 0.95
            experts += 1
    assert 0 < exact <= in_oracle
    assert experts > 0


@pytest.mark.parametrize(("name", "fmt"), CASES.items())
def test_replace_reads_back(golden: Path, name: str, fmt: str) -> None:
    """What was read and written again is the same file, byte for byte."""
    folder = golden / name
    for module in list(golden_modules(folder, default(folder)))[:8]:
        if not module.form.is_quantized:
            continue
        parts = {"codes": module.codes(), "scales": module.scales(), "zeros": module.zeros()}
        stored = {key: value for key, value in parts.items() if value is not None}
        if module.part("zero_point") is None:
            stored.pop("zeros", None)
        again = rewritten(module, **stored)
        for info in module.parts.values():
            assert np.array_equal(again.reader.raw(info), module.reader.raw(info)), info.name


def test_modelopt_int4_gives_back_the_base(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No oracle exists. AWQ moved a factor a column from each weight into the norm in front or into pre_quant_scale.

    Taken back, every weight of all 14 modules is the base weight within half a step, plus rounding of norms to bf16.
    """
    monkeypatch.setattr("tests.formats.in_memory.oracle", lambda folder: {})
    scheme = Scheme(method="modelopt", type="int", num_bits=4, strategy="group", group_size=128, symmetric=True)
    base = {module.name: module for module in golden_modules(golden / "base-bf16", None)}
    ours = {module.name: module for module in golden_modules(golden / "modelopt-int4-awq", scheme)}
    quantized = [module for module in ours.values() if module.form.is_quantized]
    assert len(quantized) == 14
    for module in quantized:
        form = module.form
        assert (form.format, form.missing, form.orphaned, form.contradictions) == ("modelopt_int4", (), (), ())
        layer, _, leaf = module.name.partition(".self_attn." if ".self_attn." in module.name else ".mlp.")
        smoothing: Array
        if module.part("pre_quant_scale") is not None:
            smoothing = module.array("pre_quant_scale").astype(np.float32)
        else:
            norm = f"{layer}.{'input' if leaf in ('q_proj', 'k_proj', 'v_proj') else 'post_attention'}_layernorm"
            smoothing = ours[norm].dequantize() / base[norm].dequantize()
        index = module.group_index()
        assert index is not None
        steps = (module.dequantize() * smoothing - base[module.name].dequantize()) / (
            module.scales()[:, index] * smoothing
        )
        assert np.abs(steps).max() < 0.55, module.name

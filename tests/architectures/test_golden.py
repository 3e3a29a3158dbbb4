"""Checkpoints of real tools: every tensor has a template, nothing needed is missing, plain shapes agree."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from degarble.architectures import (
    Container,
    canonical_name,
    gguf_canonical,
    gguf_config,
    load_architecture,
    text_prefix,
)
from tests.architectures.needs import missing, unknown

FOLDERS = [
    "auto-round-awq-w4-asym-g128",
    "autoawq-gemm-g128",
    "base-bf16",
    "bitsandbytes-nf4",
    "bitsandbytes-nf4-dq",
    "gptqmodel-awq-gemm-g128",
    "gptqmodel-gptq-asym-actorder-g64",
    "gptqmodel-gptq-sym-g128",
    "llm-compressor-fp8-block",
    "llm-compressor-fp8-dynamic",
    "llm-compressor-fp8-static-kvcache",
    "llm-compressor-mxfp4",
    "llm-compressor-nvfp4",
    "llm-compressor-w4a16-awq-asym-g128",
    "llm-compressor-w4a16-gptq-actorder-weight-g64",
    "llm-compressor-w4a16-gptq-asym-g128",
    "llm-compressor-w4a16-gptq-sym-g128",
    "llm-compressor-w8a8-int8",
    "modelopt-fp8",
    "modelopt-int4-awq",
    "modelopt-nvfp4",
    "moe-deepseekv3-llmc-w4a16-g64",
    "moe-mixtral-llmc-w4a16-g64",
    "moe-qwen3moe-llmc-w4a16-g64",
    "own-deepseek-fp8-block-576",
    "own-sharded-bf16",
    "own-untied-bf16",
    "torchao-int8wo",
]
FAULTY = {"moe-mixtral-llmc-w4a16-g64"}
"""llm-compressor saved Mixtral's experts under names that no loader of the family maps."""

_SUFFIX = re.compile(
    r"\.(qweight|qzeros|scales|g_idx|(weight_packed|weight_scale|weight_global_scale|weight_zero_point|weight_shape"
    r"|weight_scale_2|weight_scale_inv|weight_g_idx|input_scale|output_scale|input_global_scale|pre_quant_scale"
    r"|weight\._.*|weight\.(absmax|quant_map|quant_state.*|nested_.*)|_weight_.*))$"
)
_CACHE_SCALE = re.compile(r"\.(k_scale|v_scale|k_proj\.output_scale|v_proj\.output_scale)$")


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes in all safetensors headers of a folder."""
    found: dict[str, tuple[int, ...]] = {}
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        found |= {name: tuple(row["shape"]) for name, row in header.items() if name != "__metadata__"}
    return found


@pytest.mark.parametrize("name", FOLDERS)
def test_safetensors(golden: Path, name: str) -> None:
    """Names, completeness and plain shapes of one Hugging Face folder."""
    folder = golden / name
    architecture = load_architecture(json.loads((folder / "config.json").read_text()))
    assert architecture is not None
    stored = {name: shape for name, shape in shapes(folder).items() if not _CACHE_SCALE.search(name)}
    quantised = {_SUFFIX.sub("", name) for name in stored if _SUFFIX.search(name)}
    plain = {name for name in stored if not _SUFFIX.search(name)}
    prefix = text_prefix(stored)
    disk = plain | {f"{module}.weight" for module in quantised}
    names = {found for tensor in disk if (found := canonical_name(tensor, prefix)) is not None}
    if name in FAULTY:
        assert len(unknown(architecture, names)) == 24 and len(missing(architecture, names)) == 4
        return
    assert unknown(architecture, names) == []
    assert missing(architecture, names) == set()
    for tensor in plain:
        if tensor.removesuffix(".weight") not in quantised:
            template = architecture.match(tensor)
            assert template is not None and template.fits(stored[tensor]), tensor


@pytest.mark.parametrize("name", ["gguf-py-bf16", "gguf-py-q8_0", "llama.cpp-q4_0", "llama.cpp-q4_k_m"])
def test_gguf(golden: Path, name: str) -> None:
    """Names, completeness and logical shapes of one GGUF file."""
    gguf = pytest.importorskip("gguf")
    (path,) = (golden / name).glob("*.gguf")
    reader = gguf.GGUFReader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    stored = {tensor.name: tuple(int(size) for size in reversed(tensor.shape)) for tensor in reader.tensors}
    config, origin = gguf_config(metadata, None, has_output="output.weight" in stored)
    assert origin["num_hidden_layers"] == "llama.block_count"
    architecture = load_architecture(config, container=Container.GGUF)
    assert architecture is not None and architecture.tied is ("output.weight" not in stored)
    names = {gguf_canonical(name, "llama"): shape for name, shape in stored.items()}
    assert unknown(architecture, [str(name) for name in names]) == []
    assert missing(architecture, [str(name) for name in names]) == set()
    for canonical, shape in names.items():
        template = architecture.match(str(canonical))
        assert template is not None and template.fits(shape), canonical

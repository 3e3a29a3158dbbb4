"""Evidence from small files: what lies in the folder, and the JSON in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from degarble.checkpoint.index import MODEL_INDEX
from degarble.checkpoint.interface import Source
from degarble.checkpoint.json_file import JsonFile, read_json
from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides

JSON_FILES = (
    "config.json",
    "generation_config.json",
    "quantize_config.json",
    "quant_config.json",
    "quantization_config.json",
    "hf_quant_config.json",
    "quanto_qmap.json",
    "quant_model_description.json",
    "params.json",
    "adapter_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "chat_template.json",
    MODEL_INDEX,
    "consolidated.safetensors.index.json",
)
"""Small files that some rule reads. `tokenizer.json` is left to the tokenizer's own evidence: it is large."""


@provides("files")
def files(source: Source) -> Mapping[str, int]:
    """Every regular file of the target, with its size."""
    return source.files()


@provides("json_files")
def json_files(source: Source) -> Mapping[str, JsonFile]:
    """The small JSON files that are there, readable or not."""
    return {name: read_json(source, name) for name in JSON_FILES if name in source.files()}


@provides("config_file")
def config_file(json_files: Mapping[str, JsonFile], source: Source) -> JsonFile:
    """config.json as it was read, also when it is broken."""
    if "config.json" not in json_files:
        raise EvidenceMissing(f"no config.json ({source.kind})")
    return json_files["config.json"]


@provides("index_file")
def index_file(json_files: Mapping[str, JsonFile]) -> JsonFile:
    """The shard index as it was read, also when it is broken."""
    for name in (MODEL_INDEX, "consolidated.safetensors.index.json"):
        if name in json_files:
            return json_files[name]
    raise EvidenceMissing(f"no {MODEL_INDEX}")


@provides("generation_config")
def generation_config(json_files: Mapping[str, JsonFile]) -> dict[str, Any]:
    """generation_config.json as an object."""
    if "generation_config.json" not in json_files:
        raise EvidenceMissing("no generation_config.json")
    return json_files["generation_config.json"].object()

"""Evidence about the model: its config, its architecture, what the quantisation config declares, its modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from degarble.architectures.canonical import Prefix, text_prefix
from degarble.architectures.gguf_config import gguf_config
from degarble.architectures.interface import Architecture, ArchitectureError
from degarble.architectures.load import load_architecture
from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.json_file import JsonFile
from degarble.errors import EvidenceMissing, EvidenceUnjudged
from degarble.evidence.store import Coverage, Evidence, provides
from degarble.finding import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The model's config in Hugging Face keys, and where each key stands in a file."""

    file: str
    values: Mapping[str, Any]
    places: Mapping[str, str] = field(default_factory=dict)
    """HF key -> key as written, where the two differ (GGUF metadata, nested text configs)."""

    def place(self, key: str) -> Location:
        """Where a reader finds the key."""
        return Location(file=self.file, key=self.places.get(key, key))


@provides("model_config")
def model_config(json_files: Mapping[str, JsonFile], gguf: GgufFile | None = None) -> ModelConfig:
    """GGUF metadata where the weights are GGUF, else config.json."""
    if gguf is not None:
        return _from_gguf(gguf)
    if "config.json" not in json_files:
        raise EvidenceMissing("no config.json")
    values = json_files["config.json"].object()
    return ModelConfig(file="config.json", values=values, places=_nested(values))


def _from_gguf(gguf: GgufFile) -> ModelConfig:
    embedding = gguf.tensors.get("token_embd.weight")
    rows = embedding.shape[0] if embedding is not None and embedding.shape else None
    values, places = gguf_config(gguf.metadata, rows)
    return ModelConfig(file=gguf.file, values=values, places=places)


TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")


def _nested(values: Mapping[str, Any]) -> dict[str, str]:
    """Keys of a nested text config win, and are named by their dotted path."""
    places: dict[str, str] = {}
    for outer in TEXT_KEYS:
        inner = values.get(outer)
        if isinstance(inner, dict):
            places |= {key: f"{outer}.{key}" for key in inner}
    return places


@provides("architecture")
def architecture(model_config: ModelConfig, coverage: Coverage) -> Architecture:
    """What the family needs. An unknown family is named; peers across layers are all that can be compared then."""
    try:
        found = load_architecture(model_config.values)
    except ArchitectureError as error:
        raise EvidenceUnjudged(f"{model_config.file}: {error}") from None
    if found is None:
        kind = model_config.values.get("model_type")
        raise EvidenceUnjudged(f"unknown architecture {kind!r}: compared across layers only")
    return found


@provides("architecture_error")
def architecture_error(model_config: ModelConfig) -> ArchitectureError | None:
    """The config key from which no architecture can be drawn, if there is one."""
    try:
        load_architecture(model_config.values)
    except ArchitectureError as error:
        return error
    return None


@provides("prefix")
def prefix(tensors: Mapping[str, TensorInfo]) -> Prefix:
    """How this checkpoint spells `model.` and `lm_head`."""
    return text_prefix(tensors)


@provides("reference_config")
def reference_config(reference: Evidence) -> ModelConfig:
    """The config of the healthy copy."""
    found: ModelConfig = reference.get("model_config")
    return found

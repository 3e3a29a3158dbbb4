"""Evidence about the model: its config, its architecture, what the quantisation config declares, its modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from degarble.architectures.canonical import Prefix, text_prefix
from degarble.architectures.gguf_config import gguf_config
from degarble.architectures.gguf_names import gguf_tables
from degarble.architectures.interface import Architecture, ArchitectureError, Container
from degarble.architectures.load import load_architecture, text_config_of
from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.json_file import JsonFile
from degarble.errors import EvidenceMissing, EvidenceUnjudged
from degarble.evidence.store import Coverage, Evidence, provides
from degarble.finding import Location

TEXT_KEYS = ("thinker_config", "text_config", "llm_config", "language_config")
MAX_NESTING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The model's config in Hugging Face keys, and where each key stands in a file."""

    file: str
    values: Mapping[str, Any]
    places: Mapping[str, str] = field(default_factory=dict)
    """HF key -> key as written, where the two differ (GGUF metadata, nested text configs)."""
    container: Container = Container.HF
    gguf: GgufFile | None = None
    """The file whose metadata this is, for GGUF."""

    @property
    def text(self) -> Mapping[str, Any]:
        """The part that describes the language model."""
        return text_config_of(self.values)

    def place(self, key: str) -> Location:
        """Where a reader finds the key."""
        return Location(file=self.file, key=self.places.get(key, key))

    def architecture(self) -> Architecture | None:
        """What the family needs. Raises ArchitectureError; None for an unknown family."""
        return load_architecture(self.values, container=self.container)

    def with_value(self, key: str, value: object) -> ModelConfig:
        """The same config with another value in the place where the language model reads the key."""
        if self.gguf is not None and self._is_written(key):
            metadata = {**self.gguf.metadata, self.places[key]: value}
            values, _ = gguf_config(metadata, None, has_output=not self.values.get("tie_word_embeddings"))
            return replace(self, values={**self.values, **values, "vocab_size": self.values.get("vocab_size")})
        path = [] if self.gguf is not None else text_path(self.values)
        return replace(self, values=_replaced(self.values, path, key, value))

    def _is_written(self, key: str) -> bool:
        """Whether a GGUF file has a metadata pair of its own for the key, so that others may be derived from it."""
        spellings = gguf_tables()["keys"].get(key, ())
        return any(self.places.get(key, "").endswith("." + spelling) for spelling in spellings)


def text_path(values: Mapping[str, Any]) -> list[str]:
    """The keys that lead to the language model's config; empty where nothing is nested."""
    path: list[str] = []
    while len(path) < MAX_NESTING:
        outer = next((key for key in TEXT_KEYS if isinstance(values.get(key), dict)), None)
        if outer is None:
            break
        values = values[outer]
        path.append(outer)
    return path


def _replaced(values: Mapping[str, Any], path: list[str], key: str, value: object) -> dict[str, Any]:
    if not path:
        return {**values, key: value}
    return {**values, path[0]: _replaced(values[path[0]], path[1:], key, value)}


@provides("model_config")
def model_config(
    json_files: Mapping[str, JsonFile],
    gguf: GgufFile | None = None,
    tensors: Mapping[str, TensorInfo] | None = None,
) -> ModelConfig:
    """GGUF metadata where the weights are GGUF, else config.json."""
    if gguf is not None:
        return _from_gguf(gguf, tensors or {})
    if "config.json" not in json_files:
        raise EvidenceMissing("no config.json")
    values = json_files["config.json"].object()
    return ModelConfig(file="config.json", values=values, places=_nested(values))


def _from_gguf(gguf: GgufFile, tensors: Mapping[str, TensorInfo]) -> ModelConfig:
    """Tensors of all parts of a split file count: the first part may hold metadata alone."""
    embedding = tensors.get("token_embd.weight")
    rows = embedding.shape[0] if embedding is not None and embedding.shape else None
    values, places = gguf_config(gguf.metadata, rows, has_output="output.weight" in tensors)
    return ModelConfig(file=gguf.file, values=values, places=places, container=Container.GGUF, gguf=gguf)


def _nested(values: Mapping[str, Any]) -> dict[str, str]:
    """Keys of a nested text config win, and are named by their dotted path."""
    places: dict[str, str] = {}
    path = ""
    for outer in text_path(values):
        values, path = values[outer], f"{path}{outer}."
        places |= {key: f"{path}{key}" for key in values}
    return places


@provides("architecture")
def architecture(model_config: ModelConfig, coverage: Coverage) -> Architecture:
    """What the family needs. An unknown family is named; peers across layers are all that can be compared then."""
    try:
        found = model_config.architecture()
    except ArchitectureError as error:
        raise EvidenceUnjudged(f"{model_config.file}: {error}") from None
    if found is None:
        kind = model_config.text.get("model_type")
        raise EvidenceUnjudged(f"unknown architecture {str(kind)[:80]!r}: compared across layers only")
    return found


@provides("architecture_error")
def architecture_error(model_config: ModelConfig) -> ArchitectureError | None:
    """The config key from which no architecture can be drawn, if there is one."""
    try:
        model_config.architecture()
    except ArchitectureError as error:
        return error
    return None


@provides("prefix")
def prefix(groups: Mapping[str, object]) -> Prefix:
    """How this checkpoint spells `model.` and `lm_head`."""
    return text_prefix(groups)


@provides("reference_config")
def reference_config(reference: Evidence) -> ModelConfig:
    """The config of the healthy copy."""
    found: ModelConfig = reference.get("model_config")
    return found

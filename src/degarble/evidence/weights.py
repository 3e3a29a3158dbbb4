"""Evidence from weight files: headers of shards, the index, and all tensors under one roof."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from degarble.checkpoint.gguf import GgufFile, read_gguf
from degarble.checkpoint.index import MODEL_INDEX, ShardIndex, read_index
from degarble.checkpoint.interface import Source, TensorInfo
from degarble.checkpoint.json_file import JsonFile
from degarble.checkpoint.safetensors import Header, read_header
from degarble.checkpoint.tensor_data import TensorReader
from degarble.errors import EvidenceMissing, EvidenceUnjudged, MalformedFile, TargetError
from degarble.evidence.store import Coverage, provides

NUMBERED = re.compile(r"(?P<stem>.*?)-(?P<number>\d{5,6})-of-(?P<total>\d{5,6})\.(?P<suffix>safetensors|gguf)\Z")
"""`model-00003-of-00163.safetensors`."""

ASIDE = re.compile(
    r"(consolidated|adapter_model|pytorch_lora|optimizer|training|tokenizer|rng_state)[^/]*\.safetensors\Z"
)
"""safetensors that are another form of the model, or not the model."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One weight file: its header, or why it has none."""

    file: str
    header: Header | None = None
    gguf: GgufFile | None = None
    problem: MalformedFile | None = None

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """What the readable header holds."""
        if self.header is not None:
            return self.header.tensors
        return self.gguf.tensors if self.gguf is not None else {}


@provides("index")
def index(index_file: JsonFile) -> ShardIndex:
    """The shard index, if it is one."""
    return read_index(index_file)


@provides("shards")
def shards(source: Source, index: ShardIndex | None = None) -> Mapping[str, Shard]:
    """Every weight file that makes up the model, by name. Missing ones are not in it."""
    names = weight_files(source.files(), index)
    if not names:
        raise EvidenceMissing("no .safetensors or .gguf weights")
    return {name: _shard(source, name) for name in names}


def weight_files(files: Mapping[str, int], index: ShardIndex | None) -> list[str]:
    """Names of the weight files: those of the model, else an adapter's, else Mistral's consolidated ones."""
    there = [name for name in files if "/" not in name]
    gguf = sorted(name for name in there if name.endswith(".gguf"))
    safetensors = sorted(name for name in there if name.endswith(".safetensors"))
    model = [name for name in safetensors if not ASIDE.match(name)]
    if index is not None and index.file == MODEL_INDEX:
        model = sorted({*model, *(name for name in index.shards if name in files)})
    return model or gguf or safetensors


def _shard(source: Source, name: str) -> Shard:
    try:
        if name.endswith(".gguf"):
            return Shard(file=name, gguf=read_gguf(source, name))
        return Shard(file=name, header=read_header(source, name))
    except MalformedFile as problem:
        return Shard(file=name, problem=problem)
    except TargetError as error:
        return Shard(file=name, problem=MalformedFile(name, "byte 0", "a readable file", str(error)))


@provides("tensors")
def tensors(shards: Mapping[str, Shard]) -> Mapping[str, TensorInfo]:
    """Every tensor of every readable file. A name in two shards keeps the first (CKP107 reports it)."""
    merged: dict[str, TensorInfo] = {}
    for shard in shards.values():
        twice = merged.keys() & shard.tensors.keys()
        merged.update(shard.tensors if not twice else {k: v for k, v in shard.tensors.items() if k not in twice})
    if not merged:
        raise EvidenceUnjudged("no weight file has a readable header with tensors in it")
    return merged


@provides("gguf")
def gguf(shards: Mapping[str, Shard]) -> GgufFile:
    """The first GGUF file, whose metadata describes the model."""
    for shard in shards.values():
        if shard.gguf is not None:
            return shard.gguf
    raise EvidenceMissing("not a GGUF file")


@provides("reader")
def reader(source: Source) -> TensorReader:
    """Reads tensor values."""
    return TensorReader(source)


@provides("refused_files")
def refused_files(source: Source, coverage: Coverage) -> Mapping[str, str]:
    """Names that are there and were not opened."""
    for name, reason in source.refused().items():
        coverage.add(name, reason)
    return source.refused()

"""TOK408, 410, 412, 417, 418 and 419 on files that break every expectation: never a traceback, never for long."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from degarble.api import check_source
from degarble.checkpoint.gguf_writer import encode_header
from degarble.checkpoint.interface import Source
from degarble.evidence import Evidence, Settings
from degarble.registry import Level
from tests.checks.text.hostile_documents import hostile_documents
from tests.checks.text.text_findings import GgufSource
from tests.memory_source import MemorySource
from tests.tokenizer.trained import trained

RULES = ["TOK408", "TOK410", "TOK412", "TOK417", "TOK418", "TOK419"]
DOCUMENTS = hostile_documents()
HEADER = Settings(level=Level.HEADER)
MAX_SECONDS = 20


def survive(source: Source, reference: Source) -> None:
    started = time.monotonic()
    for mine, theirs in ((source, reference), (reference, source)):
        report = check_source(mine, HEADER, Evidence(theirs, HEADER), chosen=RULES)
        assert report.summary["crashed"] == 0, [result.reason for result in report.results]
    assert time.monotonic() - started < MAX_SECONDS


def folder(document: Any, **others: Any) -> MemorySource:
    files = {"tokenizer.json": document, **{f"{name}.json": value for name, value in others.items()}}
    return MemorySource({name: json.dumps(value).encode() for name, value in files.items()})


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents(name: str) -> None:
    survive(folder(DOCUMENTS[name]), folder(trained()))


@pytest.mark.parametrize(
    "value", [None, [], 7, {}, {"tokenizer_class": 7}, {"tokenizer_class": ["LlamaTokenizer"]}, "x"]
)
def test_configs(value: Any) -> None:
    survive(folder(trained(), tokenizer_config=value, config=value), folder(trained()))


GGUF: dict[str, dict[str, tuple[Any, tuple[int, int | None]]]] = {
    "no merges": {},
    "merges of numbers": {"merges": (np.arange(9, dtype=np.int32), (9, 5))},
    "merges of nonsense": {"merges": (["", " ", "ab", "a  b", "\udcff a"], (9, 8))},
    "pre is a number": {"pre": (7, (4, None))},
    "pre is a list": {"pre": (["qwen2"], (9, 8))},
    "pre is an array": {"pre": (np.arange(3, dtype=np.int32), (9, 5))},
    "pre is empty": {"pre": ("", (8, None))},
    "scores that are none": {"scores": (np.full(4, np.nan, np.float32), (9, 6))},
    "scores of another length": {"scores": (np.zeros(2, np.float32), (9, 6))},
    "scores are texts": {"scores": (["a", "b", "c", "d"], (9, 8))},
    "types of nonsense": {"token_type": (np.array([99, -1, 0, 7], np.int32), (9, 5))},
}


@pytest.mark.parametrize("model", ["gpt2", "llama", "t5", "gemma4"])
@pytest.mark.parametrize("name", GGUF)
def test_gguf(name: str, model: str) -> None:
    pairs = {"model": (model, (8, None)), "tokens": (["a", "b", "ab", "\udcff"], (9, 8)), **GGUF[name]}
    metadata = {f"tokenizer.ggml.{key}": value for key, (value, _) in pairs.items()}
    kinds = {f"tokenizer.ggml.{key}": kind for key, (_, kind) in pairs.items()}
    survive(GgufSource({"model.gguf": encode_header(metadata, kinds, [], 32)}), folder(trained()))


def test_empty_gguf() -> None:
    metadata: dict[str, Any] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": []}
    kinds: dict[str, tuple[int, int | None]] = {"tokenizer.ggml.model": (8, None), "tokenizer.ggml.tokens": (9, 8)}
    survive(GgufSource({"model.gguf": encode_header(metadata, kinds, [], 32)}), folder(trained()))


@pytest.mark.parametrize(
    "data", [b"", b"\x0a", b"\x0a\xff\xff\xff", b"\x0a\x05\x0a\x03abc" * 3, b"\x0a\x80\x80\x80\x80\x80"]
)
def test_sentencepiece(data: bytes) -> None:
    survive(MemorySource({"tokenizer.model": data}), folder(trained()))

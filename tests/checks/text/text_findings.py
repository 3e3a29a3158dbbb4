"""What one rule says about a checkpoint that is nothing but a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from degarble.api import check_source
from degarble.checkpoint.gguf_writer import encode_header
from degarble.checkpoint.interface import Source
from degarble.evidence import Settings
from degarble.finding import Finding, Severity
from degarble.registry import Level
from tests.memory_source import MemorySource


def findings(rule: str, source: Source, settings: Settings | None = None) -> list[Finding]:
    """Findings of a rule, which must not crash."""
    report = check_source(source, settings or Settings(level=Level.HEADER), chosen=[rule])
    assert report.summary["crashed"] == 0, [result.reason for result in report.results]
    return list(report.findings)


def in_folder(rule: str, document: Any, settings: Settings | None = None, **others: Any) -> list[Finding]:
    """Of a folder with this tokenizer.json and other JSON files."""
    files = {"tokenizer.json": document, **{f"{name}.json": value for name, value in others.items()}}
    data = {name: value if isinstance(value, bytes) else json.dumps(value).encode() for name, value in files.items()}
    return findings(rule, MemorySource(data), settings)


def loud(found: list[Finding]) -> list[Finding]:
    """Errors and warnings."""
    return [finding for finding in found if finding.severity is not Severity.INFO]


class GgufSource(MemorySource):
    """Stands for one GGUF file."""

    kind = "gguf"


def gguf(model: str, tokens: Mapping[str, int], **others: Any) -> Source:
    """A GGUF file with these tokens and their types, and no tensors."""
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": np.array(list(tokens.values()), np.int32),
        **{f"tokenizer.{name}": value for name, value in others.items()},
    }
    kinds: dict[str, tuple[int, int | None]] = {
        key: (8, None) if isinstance(value, str) else (7, None) if isinstance(value, bool) else (9, 8)
        for key, value in metadata.items()
    }
    kinds["tokenizer.ggml.token_type"] = (9, 5)
    return GgufSource({"model.gguf": encode_header(metadata, kinds, [], 32)})

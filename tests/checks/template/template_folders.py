"""Small folders and GGUF files with a chat template, and what one rule says about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from degarble.api import check_source
from degarble.checkpoint.gguf_writer import encode_header
from degarble.checkpoint.interface import Source
from degarble.evidence import Evidence, Settings
from degarble.finding import Finding, Severity
from degarble.registry import Level
from tests.memory_source import MemorySource
from tests.tokenizer.small_tokenizers import added, byte_level

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
FIRST_ID = 300
"""Id of the first added token; below are bytes, some words, and a hole."""
HEADER = Settings(level=Level.HEADER)


class Folder(MemorySource):
    """A folder of this name."""

    def __init__(self, files: dict[str, bytes], name: str = "memory") -> None:
        super().__init__(files)
        self._name = name

    @property
    def path(self) -> str:
        """As the user typed it."""
        return f"models/{self._name}"


class GgufFile(MemorySource):
    """One GGUF file."""

    kind = "gguf"


def folder(
    template: Any = CHATML,
    *,
    tokens: Sequence[str] = TOKENS,
    name: str = "memory",
    jinja: str | None = None,
    **others: Any,
) -> Source:
    """A folder with a tokenizer that has these special tokens; `others`: JSON files, None leaves one out."""
    document = byte_level()
    document["added_tokens"] = [added(FIRST_ID + at, text, special=True) for at, text in enumerate(tokens)]
    config = {"bos_token": None, "eos_token": tokens[1] if len(tokens) > 1 else None, "chat_template": template}
    files: dict[str, Any] = {"tokenizer": document, "tokenizer_config": config, **others}
    data = {f"{file}.json": json.dumps(value).encode() for file, value in files.items() if value is not None}
    return Folder(data if jinja is None else {**data, "chat_template.jinja": jinja.encode()}, name)


def config_with(template: Any = CHATML, **values: Any) -> dict[str, Any]:
    """A tokenizer_config.json."""
    return {"bos_token": None, "eos_token": TOKENS[1], "chat_template": template, **values}


def gguf(template: str | None = CHATML, *, tokens: Sequence[str] = TOKENS, **metadata: Any) -> Source:
    """A GGUF file without tensors; `metadata`: keys below `tokenizer.ggml.`, with `__` for a dot in `general__name`."""
    texts = ["a", "b", *tokens]
    values: dict[str, Any] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array([1, 1, *([3] * len(tokens))], np.int32),
    }
    values |= {key.replace("__", ".") if "__" in key else f"tokenizer.ggml.{key}": v for key, v in metadata.items()}
    if template is not None:
        values["tokenizer.chat_template"] = template
    kinds = {key: _kind(value) for key, value in values.items()}
    return GgufFile({"model.gguf": encode_header(values, kinds, [], 32)})


def _kind(value: object) -> tuple[int, int | None]:
    if isinstance(value, list):
        return (9, 8)
    if isinstance(value, np.ndarray):
        return (9, 5)
    return (8, None) if isinstance(value, str) else (7, None) if isinstance(value, bool) else (4, None)


def findings(rule: str, source: Source, reference: Source | None = None) -> list[Finding]:
    """What a rule says; it must not crash."""
    other = None if reference is None else Evidence(reference, HEADER)
    report = check_source(source, HEADER, other, chosen=[rule])
    assert report.summary["crashed"] == 0, [result.reason for result in report.results]
    return list(report.findings)


def loud(rule: str, source: Source, reference: Source | None = None) -> list[Finding]:
    """Its errors and warnings."""
    return [finding for finding in findings(rule, source, reference) if finding.severity is not Severity.INFO]


def severities(rule: str, source: Source) -> list[str]:
    """How bad it says things are."""
    return [str(finding.severity) for finding in findings(rule, source)]

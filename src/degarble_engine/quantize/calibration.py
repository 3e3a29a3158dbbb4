"""The text that methods are calibrated on: sequences of token ids, equal for equal files, told by a digest.

A file has one text a line, or JSON lines with `text`, `prompt` or `ids`; `ids` are taken as they are, so that several
tools can be given the same tokens. Long texts are cut into pieces; texts are never joined, since no model was taught
what follows a strange document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from degarble.errors import EvidenceMissing, UsageError
from degarble.evidence import Evidence
from degarble_engine.numerics.tokens import TokenBatch, batch_of, built_in_texts, read_text_file, tokenizer_of

BUILT_IN = "builtin"
MAX_FILE_BYTES = 1 << 28
MAX_SEQUENCES, MAX_SEQUENCE_TOKENS = 1 << 14, 1 << 15


def calibration_batch(evidence: Evidence, file: str, sequences: int, tokens: int, vocab_size: int) -> TokenBatch:
    """The first `sequences` pieces of at most `tokens` ids. Raises UsageError for a file that gives none."""
    for name, value, most in (
        ("--calibration-samples", sequences, MAX_SEQUENCES),
        ("--calibration-tokens", tokens, MAX_SEQUENCE_TOKENS),
    ):
        if not 1 <= value <= most:
            raise UsageError(f"{name} {value}: from 1 to {most}")
    texts: Sequence[str | list[int]] = built_in_texts() if file == BUILT_IN else list(_lines(file))
    found: list[list[int]] = []
    for ids in _encoded(texts, evidence, file):
        found.extend(ids[at : at + tokens] for at in range(0, len(ids), tokens))
        if len(found) >= sequences:
            break
    kept = [one for one in found[:sequences] if one]
    worst = max((max(one) for one in kept), default=0)
    if worst >= vocab_size:
        raise UsageError(f"--calibration {file}: token id {worst}, but the model has {vocab_size}")
    return batch_of(kept, f"calibration {Path(file).name}")


def _encoded(texts: Sequence[str | list[int]], evidence: Evidence, file: str) -> Iterator[list[int]]:
    tokenizer = tokenizer_of(evidence) if any(isinstance(text, str) for text in texts) else None
    for text in texts:
        if not isinstance(text, str):
            yield text
        elif tokenizer is None:
            raise EvidenceMissing(f"--calibration {file}: texts need a tokenizer.json that can be read; give `ids`")
        else:
            yield list(tokenizer.encode(text).ids)


def _lines(file: str) -> Iterator[str | list[int]]:
    text = read_text_file("--calibration", file, MAX_FILE_BYTES)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield _text(line, f"--calibration {file}: line {number}")


def _text(line: str, place: str) -> str | list[int]:
    if not line.lstrip().startswith("{"):
        return line
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: expected JSON, found {error}") from None
    ids, text = value.get("ids"), value.get("text") or value.get("prompt")
    if isinstance(ids, list) and ids and all(type(one) is int and 0 <= one < 1 << 31 for one in ids):
        return ids
    if isinstance(text, str) and text:
        return text
    raise UsageError(f"{place}: expected `text`, `prompt` or `ids`, found {sorted(value)[:5]}")

"""What the walk reads: a batch of token sequences, padded on the right, where causal attention never looks at padding."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from degarble.errors import EvidenceMissing, UsageError
from degarble.evidence import Evidence

MAX_TOKENS = 128
"""Of each text: 128 tokens of text are enough to tell rounding from a fault (measured: research notes, docs/log.md)."""
MAX_PROMPTS = 64
MAX_PROMPT_BYTES = 1 << 24
RANDOM_SEED = 20240229


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Sequences of one batch."""

    ids: Tensor  # [batch, tokens] int64
    valid: Tensor  # [batch, tokens] bool
    origin: str
    """Where the ids came from, for the report."""
    pieces: tuple[tuple[str, ...], ...] = ()
    """The text of every token, by sequence; empty where no tokenizer was at hand."""

    @property
    def num_tokens(self) -> int:
        """Valid tokens."""
        return int(self.valid.sum())

    def digest(self) -> str:
        """Equal for equal batches."""
        return hashlib.sha256(self.ids.numpy().tobytes() + self.valid.numpy().tobytes()).hexdigest()[:16]

    def place(self, row: int) -> tuple[int, int]:
        """(sequence, position) of a row of valid tokens."""
        sequence, position = self.valid.nonzero()[row].tolist()
        return int(sequence), int(position)


def batch_of(sequences: Sequence[Sequence[int]], origin: str, pieces: Sequence[Sequence[str]] = ()) -> TokenBatch:
    """Pad sequences of ids into a batch. Raises UsageError if there is nothing in them."""
    kept = [list(one) for one in sequences if len(one)]
    if not kept:
        raise UsageError(f"{origin}: no tokens to run")
    width = max(map(len, kept))
    ids = torch.zeros(len(kept), width, dtype=torch.long)
    valid = torch.zeros(len(kept), width, dtype=torch.bool)
    for number, one in enumerate(kept):
        ids[number, : len(one)] = torch.tensor(one)
        valid[number, : len(one)] = True
    return TokenBatch(ids=ids, valid=valid, origin=origin, pieces=tuple(tuple(one) for one in pieces))


def built_in_texts() -> list[str]:
    """Short passages in several languages, code and figures; written for this purpose."""
    text = (files("degarble_engine.data") / "texts.txt").read_text(encoding="utf-8")
    return [part.strip() for part in text.split("\n---\n") if part.strip()]


def read_text_file(option: str, path: str, most: int) -> str:
    """A file of UTF-8 that an option names. Raises UsageError where it is larger than `most` bytes, or not that."""
    try:
        file = Path(path)
        if file.stat().st_size > most:
            raise UsageError(f"{option} {path}: larger than {most} bytes")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option} {path}: {getattr(error, 'strerror', None) or error}") from None


def read_prompts(path: str) -> list[str]:
    """Texts of a file: JSON lines with `text` or `prompt`, a JSON list of strings, or one text a line."""
    lines = read_text_file("--prompts", path, MAX_PROMPT_BYTES)
    if lines.lstrip().startswith("["):
        found = _json(path, 1, lines)
        values = found if isinstance(found, list) else [found]
    else:
        rows = [line for line in lines.splitlines() if line.strip()]
        values = [_json(path, n, row) if row.lstrip().startswith("{") else row for n, row in enumerate(rows, 1)]
    texts = [one.get("text") or one.get("prompt") if isinstance(one, dict) else one for one in values]
    if not texts or not all(isinstance(one, str) and one for one in texts):
        raise UsageError(
            f"--prompts {path}: expected texts (or objects with `text` or `prompt`), found {texts[:1]!r:.80}"
        )
    return [str(one) for one in texts[:MAX_PROMPTS]]


def _json(path: str, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"--prompts {path}: line {line}: expected JSON, found {error}") from None


def encode(texts: Sequence[str], owners: Sequence[Evidence], origin: str, max_tokens: int = MAX_TOKENS) -> TokenBatch:
    """Ids by the first owner that has a usable tokenizer.json. Raises EvidenceMissing if none has."""
    tokenizer = next((found for owner in owners if (found := tokenizer_of(owner)) is not None), None)
    if tokenizer is None:
        raise EvidenceMissing("no tokenizer.json that could be read")
    encoded = [tokenizer.encode(text) for text in texts]
    pieces = [_pieces(tokenizer, text, found)[:max_tokens] for text, found in zip(texts, encoded, strict=True)]
    return batch_of([found.ids[:max_tokens] for found in encoded], origin, [one for one in pieces if one])


def _pieces(tokenizer: Any, text: str, encoded: Any) -> list[str]:
    """What each token adds to the text; nothing for the further bytes of a character. Joined they are the text again."""
    found, end = [], 0
    for token_id, (start, stop) in zip(encoded.ids, encoded.offsets, strict=True):
        if stop <= start:  # added by the tokenizer, as a begin of sentence is
            found.append(tokenizer.decode([token_id], skip_special_tokens=False))
            continue
        found.append(text[end:stop])
        end = max(end, stop)
    return found


def tokenizer_of(evidence: Evidence) -> Any | None:
    """The library's tokenizer of a checkpoint; None where there is none or it is damaged."""
    from tokenizers import Tokenizer

    source = evidence.get("source")
    size = source.files().get("tokenizer.json")
    if size is None:
        return None
    try:
        return Tokenizer.from_buffer(source.read("tokenizer.json", 0, size))
    except Exception:  # the library raises a bare Exception for anything
        return None


def random_batch(vocab_size: int, sequences: int = 4, tokens: int = MAX_TOKENS) -> TokenBatch:
    """Ids by chance, for a checkpoint without a tokenizer: worse than text, better than nothing."""
    generator = torch.Generator().manual_seed(RANDOM_SEED)
    ids = torch.randint(vocab_size, (sequences, tokens), generator=generator)
    return TokenBatch(ids=ids, valid=torch.ones_like(ids, dtype=torch.bool), origin="random token ids")

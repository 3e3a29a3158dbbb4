"""Evidence about tokenizer.json as it is stored, also where its decoder is one that no table can express."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.interface import MAX_SMALL_FILE_BYTES, Source
from degarble.errors import EvidenceMissing, EvidenceUnjudged
from degarble.evidence.store import provides
from degarble.tokenizer.gguf_vocabulary import PREFIX
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import JSON_FILE
from degarble.tokenizer.spelling import Spelling, read_spelling
from degarble.tokenizer.stages import Stage, stages


@dataclass(frozen=True, kw_only=True)
class StoredTokenizer:
    """The parts of a tokenizer.json."""

    file: str
    parts: Mapping[str, Any]
    """normalizer, pre_tokenizer, post_processor, decoder; model without its vocabulary."""
    pieces: Sequence[str | None] = field(repr=False)
    added: frozenset[str] = field(repr=False)
    """Contents of its added tokens."""

    @property
    def model(self) -> Mapping[str, Any]:
        """type, byte_fallback, unk_token …"""
        model = self.parts.get("model")
        return model if isinstance(model, Mapping) else {}

    def stages(self, part: str) -> list[Stage]:
        """The steps of one part."""
        return stages(self.parts.get(part), part)


@provides("stored_tokenizer")
def stored_tokenizer(source: Source, tokenizer: Tokenizer | None = None) -> StoredTokenizer:
    """Raises EvidenceMissing where the tokenizer is stored otherwise, EvidenceUnjudged for a file that cannot be read."""
    if tokenizer is None and JSON_FILE in source.files():
        return _read(source)
    if tokenizer is None or not tokenizer.file.endswith(".json"):
        raise EvidenceMissing(f"no {JSON_FILE}")
    return StoredTokenizer(
        file=tokenizer.file,
        parts=tokenizer.pipeline,
        pieces=tokenizer.pieces,
        added=frozenset(token.content for token in tokenizer.added_tokens.values()),
    )


@provides("spelling")
def spelling(stored_tokenizer: StoredTokenizer | None = None, tokenizer: Tokenizer | None = None) -> Spelling:
    """How the pieces are written, whatever they are stored in."""
    if stored_tokenizer is not None:
        return read_spelling(stored_tokenizer.pieces, stored_tokenizer.added)
    if tokenizer is None:
        raise EvidenceMissing("no tokenizer")
    return read_spelling(tokenizer.pieces, [token.content for token in tokenizer.added_tokens.values()])


@provides("token_types")
def token_types(gguf: GgufFile, tokenizer: Tokenizer) -> list[int]:
    """Type of every id of a GGUF vocabulary; empty where the file has none. The tokenizer has checked their number."""
    stored = gguf.metadata.get(f"{PREFIX}token_type")
    return [] if stored is None else [int(value) for value in getattr(stored, "tolist", lambda: stored)()]


def _read(source: Source) -> StoredTokenizer:
    """The second way in, for files that the table of bytes refuses: nothing is expected of any value."""
    if source.files()[JSON_FILE] > MAX_SMALL_FILE_BYTES:
        raise EvidenceUnjudged(f"{JSON_FILE}: larger than {MAX_SMALL_FILE_BYTES} bytes")
    try:
        document = msgspec.json.decode(source.read(JSON_FILE), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceUnjudged(f"{JSON_FILE}: {error}") from None
    model = document.get("model")
    model = model if isinstance(model, dict) else {}
    listed = document.get("added_tokens")
    contents = [entry.get("content") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    added = [text for text in contents if isinstance(text, str)]
    return StoredTokenizer(
        file=JSON_FILE,
        parts={
            **{part: document.get(part) for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder")},
            "model": {key: value for key, value in model.items() if key not in ("vocab", "merges")},
        },
        pieces=[*_pieces(model.get("vocab")), *added],
        added=frozenset(added),
    )


def _pieces(vocab: object) -> list[str | None]:
    if isinstance(vocab, dict):
        return list(vocab)
    rows = vocab if isinstance(vocab, list) else []
    return [row[0] for row in rows if isinstance(row, list) and row and isinstance(row[0], str)]

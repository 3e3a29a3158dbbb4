"""The scores of a sentencepiece or Unigram vocabulary, by id, from wherever it is stored."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from degarble.checkpoint.gguf import GgufFile
from degarble.errors import EvidenceMissing
from degarble.tokenizer.gguf_vocabulary import NORMAL, PREFIX
from degarble.tokenizer.interface import Tokenizer

_SCORE_TAG = 0x15
"""Field 2, four bytes."""
Scored = tuple[Mapping[int, str], Sequence[float]]
"""Normal pieces by rising id, and the scores of all ids."""


class _Model(msgspec.Struct):
    vocab: list[tuple[str, float]]


class _File(msgspec.Struct):
    model: _Model


def scored_pieces(tokenizer: Tokenizer, gguf: GgufFile | None) -> Scored:
    """Raises EvidenceMissing where there are no scores."""
    if gguf is not None:
        return _of_gguf(tokenizer, gguf)
    if tokenizer.file.endswith(".json"):
        return _of_json(tokenizer)
    return _of_sentencepiece(tokenizer)


def _of_gguf(tokenizer: Tokenizer, gguf: GgufFile) -> Scored:
    scores: Any = gguf.metadata.get(f"{PREFIX}scores")
    types: Any = gguf.metadata.get(f"{PREFIX}token_type")
    if getattr(scores, "ndim", 0) != 1 or len(scores) != tokenizer.num_ids:
        raise EvidenceMissing(f"{gguf.file}: no scores, or another number than tokens")
    if types is None:
        types = [NORMAL] * tokenizer.num_ids
    return {
        at: piece
        for at, (piece, kind) in enumerate(zip(tokenizer.pieces, types, strict=True))
        if kind == NORMAL and piece is not None
    }, scores


def _of_json(tokenizer: Tokenizer) -> Scored:
    if tokenizer.pipeline["model"].get("type") != "Unigram":
        raise EvidenceMissing(f"{tokenizer.file}: no scores")
    try:
        rows = msgspec.json.decode(tokenizer.raw, type=_File).model.vocab
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceMissing(f"{tokenizer.file}: scores that cannot be read: {error}") from None
    pieces = {at: text for at, (text, _) in enumerate(rows) if at not in tokenizer.added_tokens}
    return pieces, [score for _, score in rows]


def _of_sentencepiece(tokenizer: Tokenizer) -> Scored:
    """Records are walked without reading their texts, which the tokenizer has. Piece, score, type is every writer's order."""
    raw, at = tokenizer.raw, 0
    pieces: dict[int, str] = {}
    scores: list[float] = []
    try:
        for token_id, text in enumerate(tokenizer.pieces):
            length, begin = _length(raw, at)
            size, start = _length(raw, begin)
            at, score = begin + length, start + size
            if score == at:
                scores.append(0.0)
                continue
            if raw[score] != _SCORE_TAG:
                raise EvidenceMissing(f"{tokenizer.file}: records in an order of their own")
            scores.append(struct.unpack_from("<f", raw, score + 1)[0])
            if text is not None and (score + 5 == at or raw[score + 6] == NORMAL):
                pieces[token_id] = text
    except (IndexError, struct.error):
        raise EvidenceMissing(f"{tokenizer.file}: records that end too early") from None
    return pieces, scores


def _length(raw: bytes, at: int) -> tuple[int, int]:
    """Of a record that begins with the tag of field 1, and where it begins; pieces are shorter than 16 KB."""
    length = raw[at + 1]
    return (length, at + 2) if length < 0x80 else (length & 0x7F | raw[at + 2] << 7, at + 3)

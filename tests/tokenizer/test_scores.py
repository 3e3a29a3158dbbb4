"""Scores from GGUF files, Unigram documents and sentencepiece models."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from degarble.checkpoint.gguf import GgufFile, read_gguf
from degarble.checkpoint.gguf_writer import encode_header
from degarble.errors import EvidenceMissing
from degarble.tokenizer.gguf_vocabulary import read_gguf_vocabulary
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.load import load_tokenizer
from degarble.tokenizer.scores import scored_pieces
from degarble.tokenizer.sentencepiece_pieces import NORMAL, read_pieces
from degarble.tokenizer.tokenizer_json import read_tokenizer_json
from tests.family_patients import family_patients
from tests.memory_source import MemorySource
from tests.tokenizer.small_tokenizers import byte_level, unigram


def gguf(scores: Any, types: Any) -> tuple[Tokenizer, GgufFile]:
    metadata: dict[str, Any] = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<s>", "a", "b"]}
    kinds: dict[str, tuple[int, int | None]] = {"tokenizer.ggml.model": (8, None), "tokenizer.ggml.tokens": (9, 8)}
    for key, value, kind in (("scores", scores, 6), ("token_type", types, 5)):
        if value is not None:
            metadata[f"tokenizer.ggml.{key}"] = np.array(value)
            kinds[f"tokenizer.ggml.{key}"] = (9, kind)
    file = read_gguf(MemorySource({"x.gguf": encode_header(metadata, kinds, [], 32)}), "x.gguf")
    return read_gguf_vocabulary(file.metadata, "x.gguf"), file


def test_gguf() -> None:
    pieces, scores = scored_pieces(*gguf([0.0, -1.0, -2.0], [3, 1, 1]))
    assert (dict(pieces), list(scores)) == ({1: "a", 2: "b"}, [0.0, -1.0, -2.0])
    assert list(scored_pieces(*gguf([0.0, -1.0, -2.0], None))[0]) == [0, 1, 2]
    for wrong in (None, [0.0]):
        with pytest.raises(EvidenceMissing):
            scored_pieces(*gguf(wrong, [3, 1, 1]))


def test_unigram() -> None:
    source = MemorySource({"tokenizer.json": json.dumps(unigram()).encode()})
    pieces, scores = scored_pieces(read_tokenizer_json(source, "tokenizer.json", {}), None)
    assert 0 not in pieces and pieces[4] == "▁the" and scores[4] == -4.0
    source = MemorySource({"tokenizer.json": json.dumps(byte_level()).encode()})
    with pytest.raises(EvidenceMissing):
        scored_pieces(read_tokenizer_json(source, "tokenizer.json", {}), None)
    odd = unigram()
    odd["model"]["vocab"][3] = ["▁"]
    source = MemorySource({"tokenizer.json": json.dumps(odd).encode()})
    with pytest.raises(EvidenceMissing):
        scored_pieces(read_tokenizer_json(source, "tokenizer.json", {}), None)


@pytest.mark.parametrize("name", ["llama-2-sentencepiece", "gemma-2-sentencepiece"])
def test_sentencepiece_is_what_its_library_says(name: str) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    path = family_patients() / name / "tokenizer.model"
    pieces, scores = scored_pieces(load_tokenizer(path.parent), None)
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert list(scores) == [model.get_score(at) for at in range(model.get_piece_size())]
    stored = read_pieces(path.read_bytes(), "tokenizer.model")
    assert dict(pieces) == {at: piece.text for at, piece in enumerate(stored) if piece.kind == NORMAL}

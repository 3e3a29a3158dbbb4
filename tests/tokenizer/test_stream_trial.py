"""The small tables are parts of the whole one, and a wrong stream is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from degarble.errors import EvidenceMissing
from degarble.tokenizer import detokenize
from degarble.tokenizer.byte_alphabet import byte_letters
from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.gguf_vocabulary import read_gguf_vocabulary
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.stream_trial import MAX_WHOLE_TABLE, sample_table, stream_differences
from degarble.tokenizer.utf8 import decode_available
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, stored, unigram, wordpiece


@pytest.mark.parametrize("document", [byte_level(), byte_level(hole=9), byte_fallback(), unigram(), wordpiece()])
def test_sample_of_all_is_the_table(document: Any, tmp_path: Path) -> None:
    tokenizer = stored(tmp_path, document)
    table = sample_table(tokenizer, None)
    assert list(table.pieces) == list(tokenizer.table.pieces)
    assert not list(stream_differences(table))


def test_gguf() -> None:
    tokens = [*byte_letters(), "<|end|>"]
    metadata: dict[str, Any] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens}
    metadata["tokenizer.ggml.token_type"] = np.array([1] * 256 + [3], np.int32)
    tokenizer = read_gguf_vocabulary(metadata, "model.gguf")
    assert list(sample_table(tokenizer, metadata).pieces) == list(tokenizer.table.pieces)


def test_no_pieces() -> None:
    assert not list(stream_differences(ByteTable(pieces=[])))
    assert not list(stream_differences(ByteTable(pieces=[None, b""])))


def test_wrong_stream_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ByteTable(pieces=[bytes([byte]) for byte in range(256)])
    right = decode_available
    monkeypatch.setattr(detokenize, "decode_available", lambda data, *, final=False: (right(data, final=True)[0], b""))
    difference = next(stream_differences(table))
    assert difference.expected != difference.found


def test_large_sentencepiece_models_are_left_out() -> None:
    pieces: list[str | None] = ["a"] * (MAX_WHOLE_TABLE + 1)
    model = Tokenizer(
        file="tokenizer.model",
        kind="metaspace",
        pieces=pieces,
        added_tokens={},
        build_table=lambda: ByteTable(pieces=[b"a"] * len(pieces)),
    )
    with pytest.raises(EvidenceMissing):
        sample_table(model, None)
    assert len(model.table.pieces) == len(pieces)
    assert sample_table(model, None) is model.table

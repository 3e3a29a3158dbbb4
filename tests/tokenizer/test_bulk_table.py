"""The quick way to a table against the long one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from degarble.tokenizer.bulk_table import bulk_pieces
from degarble.tokenizer.decoder_pipeline import read_pipeline
from degarble.tokenizer.load import load_tokenizer
from tests.family_patients import family_patients
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, stored, unigram, wordpiece
from tests.tokenizer.trained import trained

BYTE_LEVEL = {"type": "ByteLevel"}
FALLBACK = byte_fallback()["decoder"]


def long_way(pieces: Any, decoder: Any, verbatim: frozenset[int] = frozenset()) -> Any:
    return read_pipeline(decoder, "tokenizer.json").table(pieces, verbatim).pieces


@pytest.mark.parametrize("name", ["qwen3", "deepseek-v3", "gemma-3", "llama-2"])
def test_families(name: str) -> None:
    tokenizer = load_tokenizer(family_patients() / name)
    verbatim = frozenset(tokenizer.added_tokens) if tokenizer.kind == "byte-level" else frozenset()
    found = bulk_pieces(tokenizer.pieces, tokenizer.pipeline["decoder"], verbatim)
    assert found is not None and found == long_way(tokenizer.pieces, tokenizer.pipeline["decoder"], verbatim)
    assert tokenizer.table.pieces == found


@pytest.mark.parametrize(
    "document", [byte_level(), byte_level(hole=3), trained(), byte_fallback(), byte_fallback(strip=0)]
)
def test_small_ones(tmp_path: Path, document: Any) -> None:
    tokenizer = stored(tmp_path, document)
    verbatim = frozenset(tokenizer.added_tokens) if tokenizer.kind == "byte-level" else frozenset()
    found = bulk_pieces(tokenizer.pieces, document["decoder"], verbatim)
    assert found == long_way(tokenizer.pieces, document["decoder"], verbatim)


@pytest.mark.parametrize(
    ("pieces", "decoder", "verbatim"),
    [
        ([None, "", "Ġa", None], BYTE_LEVEL, []),
        (["<é>", "é", "ĠĠ"], BYTE_LEVEL, [0]),
        ([None, "", "▁a", "<0x0A>", "<0xzz>", "<0x0A>x", "<▁0x0A>", "\ud800", None], FALLBACK, []),
    ],
)
def test_odd_pieces(pieces: Any, decoder: Any, verbatim: Any) -> None:
    found = bulk_pieces(pieces, decoder, frozenset(verbatim))
    assert found is not None and found == long_way(pieces, decoder, frozenset(verbatim))


@pytest.mark.parametrize(
    ("pieces", "decoder"),
    [
        (["客", "a"], BYTE_LEVEL),
        (["a\0b", "a"], FALLBACK),
        (["a"], None),
        (["a"], unigram()["decoder"]),
        (["a"], wordpiece()["decoder"]),
        (["a"], {"type": "Sequence", "decoders": [BYTE_LEVEL, BYTE_LEVEL]}),
    ],
)
def test_left_to_the_long_way(pieces: Any, decoder: Any) -> None:
    assert bulk_pieces(pieces, decoder, frozenset()) is None


def test_nothing_at_all() -> None:
    assert bulk_pieces([], BYTE_LEVEL, frozenset()) == []
    assert bulk_pieces([], FALLBACK, frozenset()) in ([], None)

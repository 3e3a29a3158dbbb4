"""TOK410: order of ids, merges and scores in every form of storage."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from degarble.checkpoint.gguf_writer import encode_header
from degarble.checkpoint.interface import Source
from tests.checks.text.text_findings import GgufSource, findings, in_folder
from tests.tokenizer.small_tokenizers import byte_fallback, byte_level, unigram
from tests.tokenizer.trained import trained


def permuted(change: Callable[[list[int]], list[int]]) -> Any:
    """Ids from 300 to 400 in another order."""
    document = trained()
    block = list(range(300, 400))
    moved = dict(zip(block, change(list(block)), strict=True))
    document["model"]["vocab"] = {piece: moved.get(at, at) for piece, at in document["model"]["vocab"].items()}
    return document


def shuffled(block: list[int]) -> list[int]:
    random.Random(0).shuffle(block)
    return block


def shifted(block: list[int]) -> list[int]:
    return [*block[1:], block[0]]


def reversed_(block: list[int]) -> list[int]:
    return block[::-1]


def exchanged(block: list[int]) -> list[int]:
    block[5], block[70] = block[70], block[5]
    return block


@pytest.mark.parametrize("document", [trained(), trained("gpt-2"), byte_level(), byte_fallback(), unigram()])
def test_healthy(document: Any) -> None:
    assert not in_folder("TOK410", document)


@pytest.mark.parametrize("change", [shuffled, shifted, reversed_, exchanged])
def test_moved_rows(change: Callable[[list[int]], list[int]]) -> None:
    (finding,) = in_folder("TOK410", permuted(change))
    assert finding.location.key == "model.vocab" and len(finding.all_places) == 2
    assert finding.bound == {"out_of_order": 0}
    out = finding.measured["out_of_order"]
    assert isinstance(out, int) and (out > 50 if change in (shuffled, reversed_) else out <= 2)


def test_rows_moved_with_their_merges_are_not_seen() -> None:
    """What only a reference shows."""
    document = trained()
    merges = document["model"]["merges"]
    merges[500], merges[501] = merges[501], merges[500]
    names = {at: piece for piece, at in document["model"]["vocab"].items()}
    names[757], names[758] = names[758], names[757]
    document["model"]["vocab"] = {piece: at for at, piece in names.items()}
    assert not in_folder("TOK410", document)


def test_half_of_the_merges() -> None:
    document = trained()
    del document["model"]["merges"][800:]
    (finding,) = in_folder("TOK410", document)
    assert finding.location.key == "model.merges" and finding.bound == {"share_unmade": 0.01}


def test_unknown_pieces() -> None:
    document = trained()
    document["model"]["merges"][7] = ["no", "piece"]
    (finding,) = in_folder("TOK410", document)
    assert finding.measured == {"merges_of_unknown_pieces": 1, "first": 7}


@pytest.mark.parametrize("merges", [None, "a b", [1], [["a"]]])
def test_merges_that_are_none(merges: Any) -> None:
    document = trained()
    document["model"]["merges"] = merges
    (finding,) = in_folder("TOK410", document)
    assert finding.location.key == "model.merges"


def sentencepiece(pieces: list[str], scores: Any, model: str = "llama") -> Source:
    metadata = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": ["<unk>", "<s>", *pieces],
        "tokenizer.ggml.token_type": np.array([2, 3, *[1] * len(pieces)], np.int32),
        "tokenizer.ggml.scores": np.array([0.0, 0.0, *scores], np.float32),
    }
    kinds: dict[str, tuple[int, int | None]] = {
        "tokenizer.ggml.model": (8, None),
        "tokenizer.ggml.tokens": (9, 8),
        "tokenizer.ggml.token_type": (9, 5),
        "tokenizer.ggml.scores": (9, 6),
    }
    return GgufSource({"model.gguf": encode_header(metadata, kinds, [], 32)})


def words(count: int) -> list[str]:
    """Each made of two earlier ones."""
    rng = random.Random(2)
    made = dict.fromkeys("▁abcdefgh")
    while len(made) < count:
        made.setdefault(rng.choice(list(made)[-300:]) + rng.choice("abcdefgh"))
    return list(made)


@pytest.mark.parametrize("model", ["llama", "t5"])
def test_scores(model: str) -> None:
    pieces = words(500)
    scores = -np.arange(500.0)
    assert not findings("TOK410", sentencepiece(pieces, scores, model))
    assert not findings("TOK410", sentencepiece(pieces, np.zeros(500), model))
    scores[[100, 300]] = scores[[300, 100]]
    (finding,) = findings("TOK410", sentencepiece(pieces, scores, model))
    assert finding.location.key == "tokenizer.ggml.tokens" and finding.measured["out_of_order"] == 2


def test_texts_moved_under_their_scores() -> None:
    pieces = words(500)
    random.Random(0).shuffle(pieces)
    (finding,) = findings("TOK410", sentencepiece(pieces, -np.arange(500.0)))
    share = finding.measured["share_not_made_of_earlier_pieces"]
    assert isinstance(share, float) and share > 0.1

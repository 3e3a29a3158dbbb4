"""Ids against merges and scores."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from degarble.tokenizer.cut_families import ordinary_pieces
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.piece_order import PieceOrder, order_of_scores, share_not_built
from degarble.tokenizer.tokenizer_json import read_tokenizer_json
from tests.memory_source import MemorySource
from tests.tokenizer.trained import trained


def order(document: Any) -> PieceOrder:
    source = MemorySource({"tokenizer.json": json.dumps(document).encode()})
    tokenizer: Tokenizer = read_tokenizer_json(source, "tokenizer.json", {})
    return PieceOrder(tokenizer=tokenizer, ordinary=ordinary_pieces(tokenizer))


def moved(document: Any, one: int, other: int) -> Any:
    names = {at: piece for piece, at in document["model"]["vocab"].items()}
    names[one], names[other] = names[other], names[one]
    document["model"]["vocab"] = {piece: at for at, piece in names.items()}
    return document


@pytest.mark.parametrize("cuts", ["llama-bpe", "gpt-2", None])
def test_trained_vocabularies_are_in_order(cuts: str | None) -> None:
    found = order(trained(cuts))
    assert found.is_plain and found.disorder() is None
    assert (found.gaps().num_unknown, found.gaps().num_unmade) == (0, 0)


def test_without_the_short_way() -> None:
    document = trained()
    document["model"]["vocab"]["<odd piece>"] = len(document["model"]["vocab"])
    found = order(document)
    assert not found.is_plain and found.disorder() is None and found.gaps().unmade == ("<odd piece>",)


@pytest.mark.parametrize("seed", range(20))
def test_any_two_exchanged_pieces_are_seen(seed: int) -> None:
    document = trained()
    one, other = random.Random(seed).sample(range(1, len(document["model"]["vocab"])), 2)
    found = order(moved(document, one, other)).disorder()
    assert found is not None and 1 <= found.num_misplaced <= 2
    assert found.found != found.after_id and found.num_pieces > 1000


def test_neighbours_exchanged() -> None:
    document = trained()
    last = len(document["model"]["vocab"]) - 1
    for one, other in ((1, 2), (256, 257), (last - 1, last)):
        assert order(moved(trained(), one, other)).disorder() is not None


def test_a_piece_is_missing() -> None:
    document = trained()
    gone = next(piece for piece, at in document["model"]["vocab"].items() if at == 1000)
    del document["model"]["vocab"][gone]
    gaps = order(document).gaps()
    assert gaps.num_unknown >= 1 and gone in [piece for _, piece in gaps.unknown]
    assert gaps.unknown[0][0] == 1000 - 257


def test_pieces_appended_with_a_score_that_puts_them_first() -> None:
    pieces = {at: f"x{at}" for at in range(1000)}
    scores = [-1.0 - at for at in range(1000)]
    assert order_of_scores(pieces, scores) is None
    assert order_of_scores(pieces, [*scores[:900], *[0.0] * 100]) is None
    assert order_of_scores(pieces, [*scores[:990], *[0.0] * 10]) is not None
    shifted = [*scores[:400], *scores[401:600], scores[400], *scores[600:]]
    found = order_of_scores(pieces, shifted)
    assert found is not None and found.num_misplaced == 1


@pytest.mark.parametrize("scores", [[0.0] * 9, [float("nan")] * 9, [float("-inf"), *[0.0] * 8]])
def test_scores_that_say_nothing(scores: list[float]) -> None:
    assert order_of_scores({at: f"x{at}" for at in range(9)}, scores) is None
    assert order_of_scores({}, []) is None


def test_runs_of_spaces_have_ids_of_their_own() -> None:
    pieces = {0: "▁▁", 1: "▁▁▁▁", 2: "\n\n", **{at: f"x{at}" for at in range(3, 500)}}
    assert order_of_scores(pieces, [-1e9, -1e9, -1e9, *(-float(at) for at in range(3, 500))]) is None


def test_pieces_are_made_of_earlier_ones() -> None:
    texts = ["a", "b", "c", "d"]
    rng = random.Random(1)
    while len(texts) < 600:
        pair = rng.choice(texts) + rng.choice(texts)
        if pair not in texts and len(pair) < 30:
            texts.append(pair)
    assert share_not_built(dict(enumerate(texts)))[0] == 0
    mixed = [*texts[:4], *rng.sample(texts[4:], len(texts) - 4)]
    share, missing = share_not_built(dict(enumerate(mixed)))
    assert share > 0.2 and missing
    assert share_not_built({})[0] == 0 and share_not_built({0: "x" * 9999})[0] == 0

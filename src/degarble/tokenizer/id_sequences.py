"""Sequences of ids to test decoders with: encoded corpora, random ids, and ids chosen to cut characters."""

from __future__ import annotations

import random
from collections.abc import Mapping

from degarble.tokenizer.byte_table import partial_ids
from degarble.tokenizer.corpora import TEXTS_PER_CORPUS, corpus_names, make_corpus
from degarble.tokenizer.encode import Encoder
from degarble.tokenizer.interface import Tokenizer

NUM_RANDOM_IDS = 150


def encoded_corpora(tokenizer: Tokenizer, seed: int = 0, count: int = TEXTS_PER_CORPUS) -> Mapping[str, list[Sample]]:
    """Corpus -> its texts and their ids."""
    encoder = Encoder(tokenizer)
    return {
        name: [Sample(text, encoder.encode(text)) for text in make_corpus(name, seed, count)] for name in corpus_names()
    }


def chosen_ids(tokenizer: Tokenizer, seed: int = 0, count: int = TEXTS_PER_CORPUS) -> Mapping[str, list[Sample]]:
    """Sequences that no encoder would give: random ids, noise of broken characters, text spelled byte by byte."""
    rng = random.Random(seed)
    table = tokenizer.table
    valid = [at for at, piece in enumerate(table.pieces) if piece]
    partial = partial_ids(table) or valid
    return {
        "random-ids": [Sample(None, rng.choices(valid, k=NUM_RANDOM_IDS)) for _ in range(count)],
        "byte-noise": [
            Sample(None, [rng.choice(partial if rng.random() < 0.5 else valid) for _ in range(NUM_RANDOM_IDS)])
            for _ in range(count)
        ],
        "byte-by-byte": _spelled(tokenizer, seed, count),
    }


class Sample:
    """Ids, and the text they were made from (None: none)."""

    __slots__ = ("ids", "text")

    def __init__(self, text: str | None, ids: list[int]) -> None:
        self.text = text
        self.ids = ids


def _spelled(tokenizer: Tokenizer, seed: int, count: int) -> list[Sample]:
    """Valid text with one token a byte: every character above U+007F is cut in every place."""
    single = {piece: at for at, piece in reversed(list(enumerate(tokenizer.table.pieces))) if piece and len(piece) == 1}
    names = corpus_names()
    texts = [make_corpus(names[at % len(names)], seed, count)[at] for at in range(count)]
    spelled = ([single.get(bytes([byte])) for byte in text.encode()] for text in texts)
    return [
        Sample(text, [at for at in ids if at is not None])
        for text, ids in zip(texts, spelled, strict=True)
        if None not in ids
    ]

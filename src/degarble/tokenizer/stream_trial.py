"""A vocabulary's streams against its bytes, on a sample of its pieces small enough for every check."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from degarble.errors import EvidenceMissing
from degarble.tokenizer.byte_table import ByteTable, partial_ids
from degarble.tokenizer.decoder_pipeline import read_pipeline
from degarble.tokenizer.detokenize import Detokenizer
from degarble.tokenizer.gguf_vocabulary import PREFIX, read_gguf_vocabulary
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.stress import oracle_deltas

NUM_PIECES = 400
"""Drawn from the whole vocabulary."""
NUM_SHORT_PIECES = 600
"""Ids from 0 on, where bytes and specials stand in most vocabularies."""
MAX_WHOLE_TABLE = 64_000
"""A sentencepiece model is laid out whole or not at all, a second for 256,000 pieces."""
NUM_SEQUENCES = 24
SEQUENCE_TOKENS = 60
GROUPED_TOKENS = 8
"""All 128 groupings of so many tokens into steps are tried."""


class StreamDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence whose stream is not its bytes."""

    token_ids: Sequence[int]
    expected: str
    found: str


def sample_table(tokenizer: Tokenizer, gguf_metadata: Mapping[str, Any] | None, seed: int = 0) -> ByteTable:
    """Bytes of a sample of ids, numbered anew: laying out 262,000 of them takes a third of a second.

    Raises EvidenceMissing for a large sentencepiece model, of which no sample can be taken.
    """
    count = tokenizer.num_ids
    ids = sorted(
        {*range(min(count, NUM_SHORT_PIECES)), *random.Random(seed).sample(range(count), min(count, NUM_PIECES))}
    )
    pieces = [tokenizer.pieces[at] for at in ids]
    if gguf_metadata is not None:
        return _gguf_table(tokenizer, gguf_metadata, ids)
    if not tokenizer.file.endswith(".json"):
        if count > MAX_WHOLE_TABLE and "table" not in vars(tokenizer):
            raise EvidenceMissing(f"{tokenizer.file}: {count} pieces; a stream is tried on up to {MAX_WHOLE_TABLE}")
        return tokenizer.table
    pipeline = read_pipeline(tokenizer.pipeline.get("decoder"), tokenizer.file)
    is_verbatim = pipeline.kind == "byte-level"
    return pipeline.table(
        pieces, frozenset(at for at, old in enumerate(ids) if is_verbatim and old in tokenizer.added_tokens)
    )


def _gguf_table(tokenizer: Tokenizer, metadata: Mapping[str, Any], ids: Sequence[int]) -> ByteTable:
    types = metadata.get(f"{PREFIX}token_type")
    part = {**metadata, f"{PREFIX}tokens": [str(tokenizer.pieces[at]) for at in ids]}
    if types is not None:
        part[f"{PREFIX}token_type"] = [types[at] for at in ids]
    return read_gguf_vocabulary(part, tokenizer.file).table


def stream_differences(table: ByteTable, seed: int = 0) -> Iterator[StreamDifference]:
    """Random sequences, half of them of pieces that cut characters; each streamed, and some in all groupings."""
    rng = random.Random(seed)
    valid = [at for at, piece in enumerate(table.pieces) if piece]
    if not valid:
        return
    cutting = partial_ids(table) or valid
    detokenizer = Detokenizer(table)
    for number in range(NUM_SEQUENCES):
        pool = cutting if number % 2 else valid
        token_ids = [rng.choice(pool if rng.random() < 0.7 else valid) for _ in range(SEQUENCE_TOKENS)]
        groupings = [[1] * SEQUENCE_TOKENS] if number else _groupings(GROUPED_TOKENS)
        for grouping in groupings:
            taken = token_ids[: sum(grouping)]
            expected = "".join(oracle_deltas(table, taken))
            found = _streamed(detokenizer, taken, grouping)
            if found != expected:
                yield StreamDifference(token_ids=taken, expected=expected, found=found)


def _streamed(detokenizer: Detokenizer, token_ids: Sequence[int], grouping: Sequence[int]) -> str:
    stream = detokenizer.stream()
    ends = list(itertools.accumulate(grouping))
    steps = [token_ids[end - size : end] for end, size in zip(ends, grouping, strict=True)]
    return "".join(stream.push_many(step) for step in steps) + stream.finish()


def _groupings(count: int) -> list[list[int]]:
    """Every way to cut so many tokens into steps."""
    return [
        [len(step) for step in "".join("o" + " " * cut for cut in cuts).split()]
        for cuts in itertools.product((0, 1), repeat=count)
        if cuts[-1]
    ]

"""The pressure test: hard texts through a naive decoder and through ours, counted against the byte stream.

The oracle is Python's incremental UTF-8 decoder over the bytes of the ids. Damage is a U+FFFD that the oracle does not
have; a character is late when the oracle had it after an earlier id.
"""

from __future__ import annotations

import codecs
import statistics
import time
import unicodedata
from collections.abc import Sequence

import msgspec

from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.corpora import TEXTS_PER_CORPUS
from degarble.tokenizer.detokenize import Detokenizer
from degarble.tokenizer.id_sequences import Sample, chosen_ids, encoded_corpora
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.mojibake import num_spurious
from degarble.tokenizer.special_tokens import KEEP

TIMED_RUNS = 3


class StressRow(msgspec.Struct, frozen=True, kw_only=True):
    """One corpus."""

    corpus: str
    num_texts: int
    num_ids: int
    naive_percent_damaged: float
    """Responses with at least one spurious U+FFFD when each id is decoded alone."""
    naive_per_100_chars: float
    """Spurious U+FFFD in 100 characters that a reader then sees."""
    exact_percent_damaged: float
    num_different: int
    """Streams whose text is not the oracle's."""
    num_late_chars: int
    us_per_token: float
    """Median over the texts, one stream, best of three."""
    percent_round_trip: float | None
    """Texts that come back, exactly or in composed form, which some tokenizers normalise to; None: no text went in."""


def stress(tokenizer: Tokenizer, *, seed: int = 0, count: int = TEXTS_PER_CORPUS) -> list[StressRow]:
    """Run all corpora of `count` texts each."""
    detokenizer = Detokenizer(tokenizer, special=KEEP)
    samples = {**encoded_corpora(tokenizer, seed, count), **chosen_ids(tokenizer, seed, count)}
    return [_row(name, texts, detokenizer) for name, texts in samples.items() if texts]


def _row(name: str, samples: Sequence[Sample], detokenizer: Detokenizer) -> StressRow:
    table = detokenizer.table
    damaged = spurious = shown = exact_damaged = different = late = 0
    times: list[float] = []
    returned: list[bool] = []
    for sample in samples:
        steps = oracle_deltas(table, sample.ids)
        true = "".join(steps)
        naive = "".join(table.join([at]).decode("utf-8", "replace") for at in sample.ids)
        extra = num_spurious(naive, true)
        damaged += extra > 0
        spurious += extra
        shown += len(naive)
        stream = detokenizer.stream()
        deltas = [*map(stream.push, sample.ids), stream.finish()]
        exact_damaged += num_spurious("".join(deltas), true) > 0
        different += "".join(deltas) != true
        late += num_late(deltas, steps)
        times.append(_seconds(detokenizer, sample.ids) / max(1, len(sample.ids)) * 1e6)
        if sample.text is not None:
            returned.append(true in (sample.text, unicodedata.normalize("NFC", sample.text)))
    return StressRow(
        corpus=name,
        num_texts=len(samples),
        num_ids=sum(len(sample.ids) for sample in samples),
        naive_percent_damaged=round(100 * damaged / len(samples), 1),
        naive_per_100_chars=round(100 * spurious / max(1, shown), 1),
        exact_percent_damaged=round(100 * exact_damaged / len(samples), 1),
        num_different=different,
        num_late_chars=late,
        us_per_token=round(statistics.median(times), 3),
        percent_round_trip=round(100 * sum(returned) / len(returned), 1) if returned else None,
    )


def oracle_deltas(table: ByteTable, token_ids: Sequence[int]) -> list[str]:
    """Text that is certain after each id, and what the end adds, by Python's own incremental decoder."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    deltas: list[str] = []
    seen: list[int] = []
    length = 0
    for token_id in token_ids:
        if length == 0:  # the start of a text has rules of its own: ask the table until it is over
            seen.append(token_id)
            data = table.join(seen)
        else:
            data = table.bytes_of(token_id) or b""
        length += len(data)
        deltas.append(decoder.decode(data))
    return [*deltas, decoder.decode(b"", True)]


def num_late(deltas: Sequence[str], oracle: Sequence[str]) -> int:
    """Characters that were certain after some id and not sent by then, summed over the ids."""
    late = behind = 0
    for delta, certain in zip(deltas, oracle, strict=False):
        behind += len(certain) - len(delta)
        late += max(0, behind)
    return late


def _seconds(detokenizer: Detokenizer, token_ids: Sequence[int]) -> float:
    best = float("inf")
    for _ in range(TIMED_RUNS):
        push = detokenizer.stream().push
        start = time.perf_counter()
        for token_id in token_ids:
            push(token_id)
        best = min(best, time.perf_counter() - start)
    return best

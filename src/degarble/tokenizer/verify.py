"""Any tokenizer against any decoder: where do they part, and why there.

The truth is the byte stream: the bytes of the ids, joined, read as UTF-8 with one U+FFFD for each maximal invalid part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from degarble.tokenizer.corpora import TEXTS_PER_CORPUS
from degarble.tokenizer.decoder_pipeline import BYTE_TOKEN
from degarble.tokenizer.decoders import Decoder
from degarble.tokenizer.encode import Encoder
from degarble.tokenizer.id_sequences import Sample, chosen_ids, encoded_corpora
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.stress import num_late, oracle_deltas
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR

CONTEXT_IDS = 3
CONTEXT_CHARS = 12


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where a decoder leaves the byte stream."""

    corpus: str
    position: int
    """Place in the sequence of the id whose text is wrong."""
    ids: list[int]
    """That id with its neighbours."""
    bytes_hex: list[str]
    expected: str
    found: str
    reason: str


class DecoderRow(msgspec.Struct, frozen=True, kw_only=True):
    """One decoder over all sequences."""

    decoder: str
    num_sequences: int
    num_exact: int
    num_raised: int
    num_late_chars: int
    """In those that came out exact."""
    first: Disagreement | None = None


class TokenizerDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What two tokenizers do differently."""

    kind: str
    """bytes, special or ids."""
    place: str
    found: str
    expected: str


def samples_for(tokenizer: Tokenizer, *, seed: int = 0, count: int = TEXTS_PER_CORPUS) -> Mapping[str, list[Sample]]:
    """All sequences to verify with."""
    return {**encoded_corpora(tokenizer, seed, count), **chosen_ids(tokenizer, seed, count)}


def verify_decoder(
    name: str, decode: Decoder, tokenizer: Tokenizer, samples: Mapping[str, Sequence[Sample]]
) -> DecoderRow:
    """Run one decoder over all sequences. An exception of the decoder is a disagreement, never ours."""
    exact = raised = late = total = 0
    first: Disagreement | None = None
    for corpus, group in samples.items():
        for sample in group:
            total += 1
            oracle = oracle_deltas(tokenizer.table, sample.ids)
            expected, found, failure = "".join(oracle), "", ""
            try:
                deltas = decode(sample.ids)
                found = "".join(deltas)
            except Exception as error:  # foreign code: whatever it raises is what we came to see
                raised += 1
                failure = f"raises {type(error).__name__}: {error}"
            if not failure and found == expected:
                exact += 1
                late += num_late(deltas, oracle) if len(deltas) >= len(sample.ids) else 0
            elif first is None:
                first = _disagreement(corpus, tokenizer, sample.ids, oracle, found, failure)
    return DecoderRow(
        decoder=name, num_sequences=total, num_exact=exact, num_raised=raised, num_late_chars=late, first=first
    )


def _disagreement(
    corpus: str, tokenizer: Tokenizer, ids: Sequence[int], oracle: Sequence[str], found: str, failure: str
) -> Disagreement:
    expected = "".join(oracle)
    at = next(
        (n for n, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(len(expected), len(found))
    )
    position = _id_at(oracle, at)
    low, high = max(0, position - CONTEXT_IDS), position + CONTEXT_IDS + 1
    return Disagreement(
        corpus=corpus,
        position=position,
        ids=list(ids[low:high]),
        bytes_hex=[(tokenizer.table.bytes_of(token_id) or b"").hex() for token_id in ids[low:high]],
        expected=expected[max(0, at - CONTEXT_CHARS) : at + CONTEXT_CHARS],
        found=found[max(0, at - CONTEXT_CHARS) : at + CONTEXT_CHARS],
        reason=failure or _reason(expected, found, at, _is_in_broken_run(tokenizer, ids, position)),
    )


def _id_at(oracle: Sequence[str], char: int) -> int:
    """Place of the id that completes a character of the text."""
    seen = 0
    for position, delta in enumerate(oracle):
        seen += len(delta)
        if seen > char:
            return min(position, len(oracle) - 2)
    return max(0, len(oracle) - 2)


def _reason(expected: str, found: str, at: int, is_in_broken_run: bool) -> str:
    wanted, shown = expected[at : at + 1], found[at : at + 1]
    if not shown:
        if REPLACEMENT_CHAR in expected[at:]:
            return "the end is missing: bytes that wait for a character are never released"
        return "the end is missing"
    if wanted == " " or shown == " ":
        return "a space is stripped or added: the start of a text is applied to a chunk, or spaces are cleaned up"
    if shown == REPLACEMENT_CHAR and is_in_broken_run:
        return "a character inside a run of byte tokens is destroyed, since another byte of the run is invalid"
    if shown == REPLACEMENT_CHAR:
        return "a token boundary lies inside a character, and the token was decoded alone"
    if wanted == REPLACEMENT_CHAR:
        return "invalid bytes are left out or resynchronised by guessing"
    return "another text"


def _is_in_broken_run(tokenizer: Tokenizer, ids: Sequence[int], position: int) -> bool:
    """Whether the id is one of a row of byte tokens whose bytes are no UTF-8."""
    if tokenizer.kind != "byte-fallback":
        return False
    low = high = position
    while low > 0 and _is_byte_token(tokenizer, ids[low - 1]):
        low -= 1
    while high < len(ids) and _is_byte_token(tokenizer, ids[high]):
        high += 1
    try:
        b"".join(tokenizer.table.bytes_of(token_id) or b"" for token_id in ids[low:high]).decode()
    except UnicodeDecodeError:
        return True
    return False


def _is_byte_token(tokenizer: Tokenizer, token_id: int) -> bool:
    piece = tokenizer.pieces[token_id] if 0 <= token_id < tokenizer.num_ids else None
    return piece is not None and BYTE_TOKEN.match(piece) is not None


def compare_tokenizers(
    tokenizer: Tokenizer, reference: Tokenizer, samples: Mapping[str, Sequence[Sample]], limit: int = 20
) -> list[TokenizerDifference]:
    """Bytes and special flag of every id, then ids of every text: what the reference says and this one does not."""
    found: list[TokenizerDifference] = []
    for at in range(max(tokenizer.num_ids, reference.num_ids)):
        mine, theirs = tokenizer.table.bytes_of(at), reference.table.bytes_of(at)
        if mine != theirs:
            found.append(TokenizerDifference(kind="bytes", place=f"id {at}", found=repr(mine), expected=repr(theirs)))
        elif (at in tokenizer.special_ids) != (at in reference.special_ids):
            flags = (at in tokenizer.special_ids, at in reference.special_ids)
            found.append(
                TokenizerDifference(kind="special", place=f"id {at}", found=str(flags[0]), expected=str(flags[1]))
            )
        if len(found) >= limit:
            return found
    mine_encoder, their_encoder = Encoder(tokenizer), Encoder(reference)
    if mine_encoder.method != their_encoder.method:
        return found
    for corpus, group in samples.items():
        for sample in group:
            if sample.text is None or corpus == "byte-by-byte":
                continue
            mine_ids, their_ids = sample.ids, their_encoder.encode(sample.text)
            if mine_ids != their_ids:
                at = next((n for n, (a, b) in enumerate(zip(mine_ids, their_ids, strict=False)) if a != b), 0)
                found.append(
                    TokenizerDifference(
                        kind="ids",
                        place=f"{corpus}: {sample.text[:40]!r}, position {at}",
                        found=str(mine_ids[at : at + 6]),
                        expected=str(their_ids[at : at + 6]),
                    )
                )
                break
    return found[:limit]

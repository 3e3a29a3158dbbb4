"""Plants TOK410."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.tokenizer.gguf_vocabulary import PREFIX
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.scores import scored_pieces
from degarble.tokenizer.sentencepiece_pieces import StoredPiece, read_pieces

BLOCK = 64
"""Ids in a row that are moved, fewer in a small vocabulary."""


@fault("TOK410")
def ids_permuted(patient: Patient) -> Location:
    """Shuffle the rows of a block of ordinary pieces."""
    block = _block(patient)
    moved = list(block)
    while sum(one != other for one, other in zip(block, moved, strict=True)) < len(block) // 2:
        patient.rng.shuffle(moved)
    return _move(patient, dict(zip(block, moved, strict=True)))


@fault("TOK410")
def ids_shifted_by_one(patient: Patient) -> Location:
    """Move a block of ordinary pieces by one row; the last takes the first one's place."""
    block = _block(patient)
    return _move(patient, dict(zip(block, [*block[1:], block[0]], strict=True)))


@fault("TOK410")
def merge_of_unknown_piece(patient: Patient) -> Location:
    """Let one merge take a piece that the vocabulary does not have."""
    merges, place = _merges(patient)
    at = patient.pick(range(len(merges)))
    left, right = merges[at].split(" ") if isinstance(merges[at], str) else merges[at]
    stranger = f"{left}\u0378{right}"
    changed = f"{stranger} {right}" if isinstance(merges[at], str) else [stranger, right]
    return _store_merges(patient, [*merges[:at], changed, *merges[at + 1 :]], place)


@fault("TOK410")
def merges_lost(patient: Patient) -> Location:
    """Keep the first half of the merges."""
    merges, place = _merges(patient)
    return _store_merges(patient, merges[: len(merges) // 2], place)


@fault("TOK410")
def merges_reversed(patient: Patient) -> Location:
    """Reverse a block of merges; the vocabulary stays."""
    merges, place = _merges(patient)
    start = patient.pick(range(len(merges) // 4, len(merges) // 2))
    end = start + 4 * BLOCK
    return _store_merges(patient, [*merges[:start], *reversed(merges[start:end]), *merges[end:]], place)


def _tokenizer(patient: Patient) -> Tokenizer:
    tokenizer: Tokenizer | None = patient.evidence.find("tokenizer")
    if tokenizer is None:
        raise NotApplicable("no tokenizer")
    return tokenizer


def _block(patient: Patient) -> list[int]:
    """Ids of pieces in the order of merges or scores, that stand in a row."""
    tokenizer = _tokenizer(patient)
    if tokenizer.merges.stored:
        ids = [tokenizer.ids_by_piece[piece] for piece in dict.fromkeys(tokenizer.merges.products)]
    elif tokenizer.kind == "byte-fallback":
        ids = list(scored_pieces(tokenizer, patient.evidence.find("gguf"))[0])
    else:
        raise NotApplicable("neither merges nor scores")
    ids = [at for at in ids if at not in tokenizer.added_tokens]
    size = min(BLOCK, len(ids) // 4)
    start = patient.pick(range(len(ids) // 4, len(ids) // 2))
    block = ids[start : start + size]
    if size < 2 or block != list(range(block[0], block[0] + size)):
        raise NotApplicable("no ordinary pieces in a row")
    return block


def _move(patient: Patient, moved: Mapping[int, int]) -> Location:
    """Give each piece another id, its score with it."""
    tokenizer = _tokenizer(patient)
    if tokenizer.file.endswith(".json"):
        model = patient.workspace.json(tokenizer.file)["model"]
        model["vocab"] = {piece: moved.get(at, at) for piece, at in model["vocab"].items()}
        return Location(file=tokenizer.file, key="model.vocab")
    if tokenizer.file.endswith(".gguf"):
        return _move_in_gguf(patient, tokenizer, moved)
    stored = read_pieces(tokenizer.raw, tokenizer.file)
    patient.workspace.write(tokenizer.file, _reordered(tokenizer.raw, stored, moved))
    return Location(file=tokenizer.file)


def _move_in_gguf(patient: Patient, tokenizer: Tokenizer, moved: Mapping[int, int]) -> Location:
    shard: Any = patient.workspace.shard(tokenizer.file)
    for key in (f"{PREFIX}tokens", f"{PREFIX}scores"):
        if key in shard.metadata:
            old = shard.metadata[key]
            new = old.copy()
            for source, target in moved.items():
                new[target] = old[source]
            shard.set_metadata(key, new)
    return Location(file=tokenizer.file, key=f"{PREFIX}tokens")


def _reordered(raw: bytes, stored: list[StoredPiece], moved: Mapping[int, int]) -> bytes:
    records = [raw[piece.start : piece.end] for piece in stored]
    for source, target in moved.items():
        records[target] = raw[stored[source].start : stored[source].end]
    if any(one.end != other.start for one, other in pairwise(stored)):
        raise NotApplicable("records that are not in a row")
    return raw[: stored[0].start] + b"".join(records) + raw[stored[-1].end :]


def _merges(patient: Patient) -> tuple[list[Any], Location]:
    tokenizer = _tokenizer(patient)
    if not tokenizer.merges.stored:
        raise NotApplicable("no merges")
    if tokenizer.file.endswith(".json"):
        merges = patient.workspace.json(tokenizer.file)["model"]["merges"]
        return merges, Location(file=tokenizer.file, key="model.merges")
    return list(tokenizer.merges.stored), Location(file=tokenizer.file, key=f"{PREFIX}merges")


def _store_merges(patient: Patient, merges: list[Any], place: Location) -> Location:
    assert place.file is not None
    if place.file.endswith(".json"):
        patient.workspace.json(place.file)["model"]["merges"] = merges
    else:
        shard: Any = patient.workspace.shard(place.file)
        shard.set_metadata(place.key, merges)
    return place

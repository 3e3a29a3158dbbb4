"""Plants TOK417: what only the reference can prove wrong."""

from __future__ import annotations

from typing import Any

from degarble.checks.text.pretokenizer_lost import PLAIN
from degarble.evidence.store import Settings
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.registry import Level
from degarble.tokenizer.cut_families import Recognised
from degarble.tokenizer.cuts import Cutter, byte_level, gguf_pretokenizers
from degarble.tokenizer.gguf_vocabulary import PREFIX
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.round_trip import probe_texts

FILE = "tokenizer.json"
DIGITS_APART = "smollm"
HEADERS = Settings(level=Level.HEADER)
"""Weights are not read to see these."""


@fault("TOK417", needs_reference=True, settings=HEADERS)
def tokenizer_differs_from_reference(patient: Patient) -> Location:
    """Exchange two pieces that were made one after the other, together with their merges or scores."""
    tokenizer = _tokenizer(patient)
    if not tokenizer.merges.stored:
        return _exchange_under_scores(patient, tokenizer)
    pairs, products = tokenizer.merges.pairs, tokenizer.merges.products
    ids = tokenizer.ids_by_piece
    once = [
        at
        for at in range(len(pairs) // 2, len(pairs) - 2)
        if ids.get(products[at + 1]) == ids.get(products[at], -9) + 1
        and products[at] not in (*pairs[at + 1], products[at - 1])
        and products[at + 1] != products[at + 2]
        and ids[products[at]] not in tokenizer.added_tokens
    ]
    at = patient.pick(once)
    merges = list(tokenizer.merges.stored)
    merges[at : at + 2] = [merges[at + 1], merges[at]]
    return _store(patient, tokenizer, products[at], products[at + 1], merges)


@fault("TOK417", needs_reference=True, settings=HEADERS)
def merges_differ_from_reference(patient: Patient) -> Location:
    """Let one merge make its piece out of two others."""
    tokenizer = _tokenizer(patient)
    taken = set(tokenizer.merges.pairs)
    others = [
        (at, (product[:cut], product[cut:]))
        for at, (product, pair) in enumerate(zip(tokenizer.merges.products, tokenizer.merges.pairs, strict=True))
        if at > len(taken) // 2
        for cut in range(1, len(product))
        if product[:cut] in tokenizer.ids_by_piece
        and product[cut:] in tokenizer.ids_by_piece
        and (product[:cut], product[cut:]) not in taken
        and pair != (product[:cut], product[cut:])
    ]
    at, pair = patient.pick(others)
    merges: list[Any] = list(tokenizer.merges.stored)
    merges[at] = " ".join(pair) if isinstance(merges[at], str) else list(pair)
    return _store_merges(patient, tokenizer, merges)


@fault("TOK417", needs_reference=True, settings=HEADERS)
def normalizer_differs_from_reference(patient: Patient) -> Location:
    """Add Unicode composition, or take it away."""
    stored: StoredTokenizer | None = patient.evidence.find("stored_tokenizer")
    if (
        stored is None
        or stored.file != FILE
        or [step.kind for step in stored.stages("normalizer")] not in ([], ["NFC"])
    ):
        raise NotApplicable("a normaliser that does more")
    document = patient.workspace.json(FILE)
    document["normalizer"] = None if stored.stages("normalizer") else {"type": "NFC"}
    return Location(file=FILE, key="normalizer")


@fault("TOK417", needs_reference=True, settings=HEADERS)
def pretokenizer_differs_from_reference(patient: Patient) -> Location:
    """Add the single digits of SmolLM2 to GPT-2's regex, or take them away; a file may have either."""
    tokenizer = _tokenizer(patient)
    family: Recognised | None = patient.evidence.find("cut_family")
    if tokenizer.file != FILE or family is None or family.family.gguf_cuts != DIGITS_APART:
        raise NotApplicable("no tokenizer.json of such a family")
    known = gguf_pretokenizers()
    own = Cutter(None, tokenizer.pipeline.get("pre_tokenizer"))
    for name in (DIGITS_APART, PLAIN):
        chosen = byte_level(known[name].regexes or ())
        if any(own.cuts(text) != Cutter(None, chosen).cuts(text) for text in probe_texts()):
            patient.workspace.json(FILE)["pre_tokenizer"] = chosen
            return Location(file=FILE, key="pre_tokenizer")
    raise NotApplicable("both cut alike")


def _tokenizer(patient: Patient) -> Tokenizer:
    tokenizer: Tokenizer | None = patient.evidence.find("tokenizer")
    if tokenizer is None or not tokenizer.file.endswith((".json", ".gguf")):
        raise NotApplicable("no tokenizer.json and no GGUF vocabulary")
    return tokenizer


def _store(patient: Patient, tokenizer: Tokenizer, one: str, other: str, merges: list[Any]) -> Location:
    """Two pieces in each other's place."""
    _store_merges(patient, tokenizer, merges)
    if tokenizer.file.endswith(".json"):
        vocab = patient.workspace.json(tokenizer.file)["model"]["vocab"]
        vocab[one], vocab[other] = vocab[other], vocab[one]
        return Location(file=tokenizer.file, key="model.vocab")
    return _exchange_tokens(patient, tokenizer, tokenizer.ids_by_piece[one], tokenizer.ids_by_piece[other])


def _store_merges(patient: Patient, tokenizer: Tokenizer, merges: list[Any]) -> Location:
    if tokenizer.file.endswith(".json"):
        patient.workspace.json(tokenizer.file)["model"]["merges"] = merges
        return Location(file=tokenizer.file, key="model.merges")
    shard: Any = patient.workspace.shard(tokenizer.file)
    shard.set_metadata(f"{PREFIX}merges", merges)
    return Location(file=tokenizer.file, key=f"{PREFIX}merges")


def _exchange_under_scores(patient: Patient, tokenizer: Tokenizer) -> Location:
    if not tokenizer.file.endswith(".gguf"):
        raise NotApplicable("no merges")
    at = patient.pick(range(tokenizer.num_ids // 2, tokenizer.num_ids - 2))
    if {at, at + 1} & set(tokenizer.added_tokens):
        raise NotApplicable("an added token")
    return _exchange_tokens(patient, tokenizer, at, at + 1)


def _exchange_tokens(patient: Patient, tokenizer: Tokenizer, one: int, other: int) -> Location:
    tokens = list(tokenizer.pieces)
    tokens[one], tokens[other] = tokens[other], tokens[one]
    shard: Any = patient.workspace.shard(tokenizer.file)
    shard.set_metadata(f"{PREFIX}tokens", tokens)
    return Location(file=tokenizer.file, key=f"{PREFIX}tokens")

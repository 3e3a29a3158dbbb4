"""Plants TOK419."""

from __future__ import annotations

from typing import Any

from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.tokenizer.cut_families import Recognised, ordinary_pieces
from degarble.tokenizer.cut_statistics import cut_statistics
from degarble.tokenizer.cuts import Cutter, byte_level, gguf_pretokenizers
from degarble.tokenizer.interface import Tokenizer

FOREIGN = ("default", "deepseek-v3", "gpt-4o", "smollm")
"""Names whose cuts tell all families apart: Qwen's and Llama's are equal in effect on Qwen's pieces."""


@fault("TOK419")
def pretokenizer_lost(patient: Patient) -> Location:
    """Drop the regex: bytes are written as letters, and nothing is cut."""
    tokenizer = _byte_level(patient)
    uncut = byte_level([])
    if _family(patient) is None and not cut_statistics(ordinary_pieces(tokenizer), Cutter(None, uncut)).is_uncut:
        raise NotApplicable("too few pieces to tell that words were cut")
    return _stored(patient, uncut)


@fault("TOK419")
def pretokenizer_of_another_family(patient: Patient) -> Location:
    """Cut as another family does; the vocabulary stays."""
    _byte_level(patient)
    family = _family(patient)
    if family is None:
        raise NotApplicable("a vocabulary whose cuts nobody knows")
    known = gguf_pretokenizers()
    names = [name for name in FOREIGN if known[name].cuts != family.family.gguf_cuts]
    return _stored(patient, byte_level(known[patient.pick(names)].regexes or ()))


@fault("TOK419")
def ignore_merges_lost(patient: Patient) -> Location:
    """Forget that a word that is a piece needs no merges."""
    stored: StoredTokenizer | None = patient.evidence.find("stored_tokenizer")
    family = _family(patient)
    if stored is None or family is None or not family.family.needs_ignore_merges:
        raise NotApplicable("no family that needs it")
    patient.workspace.json("tokenizer.json")["model"]["ignore_merges"] = False
    return Location(file="tokenizer.json", key="model.ignore_merges")


def _byte_level(patient: Patient) -> Tokenizer:
    tokenizer: Tokenizer | None = patient.evidence.find("tokenizer")
    if tokenizer is None or tokenizer.kind != "byte-level" or not tokenizer.file.endswith(".json"):
        raise NotApplicable("no byte-level tokenizer.json")
    return tokenizer


def _family(patient: Patient) -> Recognised | None:
    found: Recognised | None = patient.evidence.find("cut_family")
    return found if found is not None and found.has_json_cuts else None


def _stored(patient: Patient, pre_tokenizer: dict[str, Any]) -> Location:
    patient.workspace.json("tokenizer.json")["pre_tokenizer"] = pre_tokenizer
    return Location(file="tokenizer.json", key="pre_tokenizer")

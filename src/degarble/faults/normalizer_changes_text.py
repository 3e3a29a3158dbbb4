"""Plants TOK416."""

from __future__ import annotations

from typing import Any

from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.tokenizer.spelling import Spelling


@fault("TOK416")
def normalizer_changes_text(patient: Patient) -> Location:
    """Lower the case of every prompt."""
    return _prepend(patient, {"type": "Lowercase"})


@fault("TOK416")
def normalizer_joins_lines(patient: Patient) -> Location:
    """Turn line breaks into spaces, as the normaliser of T5 does."""
    stored: StoredTokenizer | None = patient.evidence.find("stored_tokenizer")
    if stored is not None and "\n" in stored.added:
        raise NotApplicable("a line break is an added token, which no normaliser reaches")
    return _prepend(patient, {"type": "Replace", "pattern": {"String": "\n"}, "content": " "})


@fault("TOK416")
def normalizer_joins_spaces(patient: Patient) -> Location:
    """Make one space of several, so that indentation is lost."""
    spelling: Spelling | None = patient.evidence.find("spelling")
    if spelling is None or spelling.space is None or 2 * spelling.space not in spelling.pieces:
        raise NotApplicable("the vocabulary has no piece of two spaces")
    return _prepend(patient, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})


def _prepend(patient: Patient, step: dict[str, Any]) -> Location:
    """Before the steps that are there, some of which write spaces in another letter."""
    stored: StoredTokenizer | None = patient.evidence.find("stored_tokenizer")
    if stored is None:
        raise NotApplicable("no tokenizer.json")
    document = patient.workspace.json(stored.file)
    steps = [step, document["normalizer"]] if document.get("normalizer") else [step]
    document["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return Location(file=stored.file, key="normalizer")

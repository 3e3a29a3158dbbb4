"""Plants TOK408."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.round_trip import MADE_OF_BYTES

LINE_BREAKS = {"type": "Split", "pattern": {"Regex": "[\\r\\n]+"}, "behavior": "Removed", "invert": False}
PUNCTUATION = {"type": "Punctuation", "behavior": "Removed"}


@fault("TOK408")
def round_trip_lossy(patient: Patient) -> Location:
    """Split at line breaks and throw them away."""
    return _split_first(patient, LINE_BREAKS)


@fault("TOK408")
def punctuation_removed(patient: Patient) -> Location:
    """Split at punctuation and throw it away."""
    return _split_first(patient, PUNCTUATION)


@fault("TOK408")
def truncation_stored(patient: Patient) -> Location:
    """Leave the truncation of a training run in the file."""
    document = _document(patient)
    document["truncation"] = {"direction": "Right", "max_length": 512, "strategy": "LongestFirst", "stride": 0}
    return Location(file="tokenizer.json", key="truncation")


def _split_first(patient: Patient, step: Mapping[str, Any]) -> Location:
    document = _document(patient)
    stored = document.get("pre_tokenizer")
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step, *([stored] if stored else [])]}
    return Location(file="tokenizer.json", key="pre_tokenizer")


def _document(patient: Patient) -> Any:
    tokenizer: Tokenizer | None = patient.evidence.find("tokenizer")
    if tokenizer is None or tokenizer.file != "tokenizer.json" or tokenizer.kind not in MADE_OF_BYTES:
        raise NotApplicable("no tokenizer.json that is made of bytes")
    return patient.workspace.json(tokenizer.file)

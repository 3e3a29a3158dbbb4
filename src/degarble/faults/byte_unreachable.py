"""Plants TOK409."""

from __future__ import annotations

from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.vocabulary_edit import rename_piece, vocabulary_of
from degarble.finding import Location
from degarble.tokenizer.byte_alphabet import byte_letters
from degarble.tokenizer.spelling import BYTE_NAMES, Spelling
from degarble.tokenizer.unicode_bytes import IN_USE


@fault("TOK409")
def byte_unreachable(patient: Patient) -> Location:
    """Give the token of one byte another name; one that no merge is made of."""
    spelling: Spelling | None = patient.evidence.find("spelling")
    if spelling is None or not (spelling.is_byte_level or spelling.has_byte_fallback):
        raise NotApplicable("no bytes in the vocabulary")
    names = byte_letters() if spelling.is_byte_level else BYTE_NAMES
    needed = IN_USE if spelling.is_byte_level else frozenset(byte for byte in IN_USE if byte >= 0x80)
    used = vocabulary_of(patient).merged_pieces
    name = patient.pick(names[byte] for byte in sorted(needed) if names[byte] not in used)
    place = rename_piece(patient, name, f"{name}{name}")
    return Location(file=place.file, key=place.key, token=name)


@fault("TOK409")
def byte_fallback_off(patient: Patient) -> Location:
    """Switch the fallback to bytes off."""
    stored: StoredTokenizer | None = patient.evidence.find("stored_tokenizer")
    spelling: Spelling | None = patient.evidence.find("spelling")
    if stored is None or spelling is None or not stored.model.get("byte_fallback") or not spelling.has_byte_fallback:
        raise NotApplicable("no fallback to bytes")
    patient.workspace.json(stored.file)["model"]["byte_fallback"] = False
    return Location(file=stored.file, key="model.byte_fallback")

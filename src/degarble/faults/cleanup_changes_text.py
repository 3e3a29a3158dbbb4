"""Plants TOK415."""

from __future__ import annotations

from degarble.checks.text.cleanup_changes_text import FILE, FLAG, FORCE
from degarble.evidence.store import Settings
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location


@fault("TOK415", settings=Settings(engine="transformers", engine_version="4.57.1"))
def cleanup_changes_text(patient: Patient) -> Location:
    """Switch the clean-up on, for an older transformers."""
    _switch(patient, FLAG)
    return Location(file=FILE, key=FLAG)


@fault("TOK415")
def cleanup_forced(patient: Patient) -> Location:
    """Switch the clean-up on, and force it on BPE."""
    _switch(patient, FLAG, FORCE)
    return Location(file=FILE, key=FORCE)


@fault("TOK415")
def cleanup_of_other_model(patient: Patient) -> Location:
    """Switch the clean-up on where every version obeys."""
    if _stored(patient).model.get("type") == "BPE":
        raise NotApplicable("a BPE model, which newer versions spare")
    _switch(patient, FLAG)
    return Location(file=FILE, key=FLAG)


@fault("TOK415")
def decoder_cleans_up(patient: Patient) -> Location:
    """Switch the WordPiece decoder's own clean-up on."""
    stored = _stored(patient)
    sound = [step for step in stored.stages("decoder") if step.settings.get("cleanup") is False]
    step = patient.pick(sound)
    document = patient.workspace.json(stored.file)
    for name in step.key.split("."):
        document = document[int(name) if name.isdecimal() else name]
    document["cleanup"] = True
    return Location(file=stored.file, key=f"{step.key}.cleanup")


def _stored(patient: Patient) -> StoredTokenizer:
    found: StoredTokenizer | None = patient.evidence.find("stored_tokenizer")
    if found is None:
        raise NotApplicable("no tokenizer.json")
    return found


def _switch(patient: Patient, *flags: str) -> None:
    if FILE not in patient.workspace.files():
        raise NotApplicable(f"no {FILE}")
    config = patient.workspace.json(FILE)
    if config.get(FLAG):
        raise NotApplicable("is on already")
    config.update(dict.fromkeys(flags, True))

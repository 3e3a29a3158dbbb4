"""Plants TOK418."""

from __future__ import annotations

from degarble.checks.text.class_overrides_pipeline import KEY, QWEN_CUTS
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.tokenizer.cut_families import Recognised
from degarble.tokenizer.spelling import Spelling

CLASSES = ("LlamaTokenizerFast", "LlamaTokenizer", "CodeLlamaTokenizerFast", "GemmaTokenizer")
FILE = "tokenizer_config.json"


@fault("TOK418")
def class_overrides_pipeline(patient: Patient) -> Location:
    """Name a class with a sentencepiece pipeline over a byte-level vocabulary, as merges with a Llama base do."""
    spelling: Spelling | None = patient.evidence.find("spelling")
    if spelling is None or not spelling.is_byte_level:
        raise NotApplicable("no byte-level vocabulary")
    return _name(patient, patient.pick(CLASSES))


@fault("TOK418")
def class_of_qwen(patient: Patient) -> Location:
    """Name Qwen's class over the vocabulary of another family."""
    family: Recognised | None = patient.evidence.find("cut_family")
    if family is None or family.family.name == QWEN_CUTS:
        raise NotApplicable("no vocabulary of another known family")
    return _name(patient, "Qwen2TokenizerFast")


def _name(patient: Patient, name: str) -> Location:
    if "tokenizer.json" not in patient.workspace.files() or FILE not in patient.workspace.files():
        raise NotApplicable("no tokenizer.json, or no config beside it")
    patient.workspace.json(FILE)[KEY] = name
    return Location(file=FILE, key=KEY)

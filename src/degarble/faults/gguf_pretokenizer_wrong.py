"""Plants TOK412."""

from __future__ import annotations

from typing import Any

from degarble.checkpoint.gguf import GgufFile
from degarble.checks.text.gguf_pretokenizer_wrong import KEY
from degarble.checks.text.pretokenizer_lost import MAX_SHARE_APART
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.tokenizer.cut_families import Recognised, ordinary_pieces
from degarble.tokenizer.cut_statistics import cut_statistics
from degarble.tokenizer.cuts import WITH_CUTS, Cutter, byte_level, gguf_pretokenizers
from degarble.tokenizer.interface import Tokenizer


@fault("TOK412")
def gguf_pretokenizer_wrong(patient: Patient) -> Location:
    """Name the cuts of another family."""
    file, shard = _file(patient)
    family: Recognised | None = patient.evidence.find("cut_family")
    known = gguf_pretokenizers()
    if family is not None and family.family.gguf_cuts is not None:
        names = [name for name, meaning in known.items() if meaning.cuts != family.family.gguf_cuts]
    else:
        names = [name for name in known if _is_visible(patient, name)]
    shard.set_metadata(KEY, patient.pick(names))
    return Location(file=file, key=KEY)


@fault("TOK412")
def gguf_pretokenizer_unknown(patient: Patient) -> Location:
    """Write a name that llama.cpp does not know, as a converter of a fork does."""
    file, shard = _file(patient)
    shard.set_metadata(KEY, patient.pick(("qwen-3", "deepseek_v3", "llama_bpe", "gpt2", "my-model")))
    return Location(file=file, key=KEY)


@fault("TOK412")
def gguf_pretokenizer_missing(patient: Patient) -> Location:
    """Leave the key out, as converters did until spring 2024."""
    file, shard = _file(patient)
    shard.drop_metadata(KEY)
    return Location(file=file, key=KEY)


def _file(patient: Patient) -> tuple[str, Any]:
    gguf: GgufFile | None = patient.evidence.find("gguf")
    if gguf is None or gguf.text("tokenizer.ggml.model") != WITH_CUTS or gguf.text(KEY) is None:
        raise NotApplicable("no GGUF vocabulary with cuts")
    return gguf.file, patient.workspace.shard(gguf.file)


def _is_visible(patient: Patient, name: str) -> bool:
    """Whether a vocabulary of no known family shows that these cuts are not its own."""
    tokenizer: Tokenizer | None = patient.evidence.find("tokenizer")
    regexes = gguf_pretokenizers()[name].regexes
    if tokenizer is None or regexes is None:
        return False
    found = cut_statistics(ordinary_pieces(tokenizer), Cutter(None, byte_level(regexes)))
    return found.is_uncut or found.share_apart >= MAX_SHARE_APART

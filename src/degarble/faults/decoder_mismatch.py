"""Plants TOK407."""

from __future__ import annotations

from typing import Any

import numpy as np

from degarble.checkpoint.gguf import GgufFile
from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.vocabulary_edit import rename_piece, unused_added
from degarble.finding import Location
from degarble.tokenizer.decoder_pipeline import METASPACE
from degarble.tokenizer.gguf_vocabulary import BYTE, NORMAL, PREFIX
from degarble.tokenizer.spelling import Spelling
from degarble.tokenizer.stages import Stage, sequence_of

BYTE_LEVEL: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}
SENTENCEPIECE: dict[str, Any] = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ],
}
FOREIGN_LETTERS = "éüñßàçø"
"""Each is also the letter of a byte that can only begin or continue a character."""


@fault("TOK407")
def decoder_mismatch(patient: Patient) -> Location:
    """Set the decoder of the other kind of vocabulary, as a generic Llama file does to a byte-level one."""
    stored, spelling = _spelled(patient)
    return _set_decoder(patient, stored, SENTENCEPIECE if spelling.is_byte_level else BYTE_LEVEL)


@fault("TOK407")
def decoder_missing(patient: Patient) -> Location:
    """Leave the decoder out, so that tokens are joined with spaces."""
    return _set_decoder(patient, _spelled(patient)[0], None)


@fault("TOK407")
def bytes_not_decoded(patient: Patient) -> Location:
    """Take the step out that reads `<0xHH>`."""
    stored, spelling = _spelled(patient)
    if not spelling.has_byte_fallback or not stored.model.get("byte_fallback"):
        raise NotApplicable("no fallback to bytes")
    return _without(patient, stored, lambda step: step.kind == "ByteFallback")


@fault("TOK407")
def spaces_not_decoded(patient: Patient) -> Location:
    """Take the step out that turns U+2581 into a space."""
    stored, spelling = _spelled(patient)
    if spelling.space != METASPACE:
        raise NotApplicable("no U+2581 in the pieces")
    return _without(patient, stored, lambda step: step.kind == "Replace")


@fault("TOK407")
def first_space_kept(patient: Patient) -> Location:
    """Take the step out that strips the space which encoding prepends."""
    stored, _ = _spelled(patient)
    if not any(step.kind == "Prepend" for step in stored.stages("normalizer")):
        raise NotApplicable("nothing is prepended")
    return _without(patient, stored, lambda step: step.kind == "Strip")


@fault("TOK407")
def bytes_not_encoded(patient: Patient) -> Location:
    """Take the step out of the pre-tokenizer that writes a text in the byte alphabet."""
    stored, spelling = _spelled(patient)
    chain = stored.stages("pre_tokenizer")
    kept = [step for step in chain if step.kind != "ByteLevel"]
    if not spelling.is_byte_level or kept == chain:
        raise NotApplicable("no ByteLevel pre-tokenizer")
    patient.workspace.json(stored.file)["pre_tokenizer"] = sequence_of("pre_tokenizer", kept)
    return Location(file=stored.file, key="pre_tokenizer")


@fault("TOK407")
def added_token_in_byte_letters(patient: Patient) -> Location:
    """Write an accent into the text of an added token that nothing uses."""
    stored, spelling = _spelled(patient)
    if not spelling.is_byte_level:
        raise NotApplicable("no byte-level decoder")
    token = unused_added(patient)
    if not token.content.isascii():
        raise NotApplicable(f"{token.content!r} has a character outside the byte alphabet")
    new = f"{token.content[:2]}{patient.pick(FOREIGN_LETTERS)}{token.content[2:]}"
    if " " in new:
        raise NotApplicable("a space is outside the byte alphabet")
    place = rename_piece(patient, token.content, new)
    return Location(file=stored.file, key=place.key, token=new, token_id=token.token_id)


@fault("TOK407")
def gguf_model_names_other_spelling(patient: Patient) -> Location:
    """Name the other kind of vocabulary in tokenizer.ggml.model."""
    gguf = _gguf(patient)
    key = f"{PREFIX}model"
    other = {"gpt2": "llama", "llama": "gpt2"}.get(str(gguf.text(key)))
    if other is None:
        raise NotApplicable("neither gpt2 nor llama")
    _set(patient, gguf, key, other)
    return Location(file=gguf.file, key=key)


@fault("TOK407")
def byte_tokens_typed_normal(patient: Patient) -> Location:
    """Type the byte tokens of a GGUF vocabulary as ordinary pieces."""
    gguf = _gguf(patient)
    key = f"{PREFIX}token_type"
    types = gguf.metadata.get(key)
    if types is None or not np.any(np.asarray(types) == BYTE):
        raise NotApplicable("no byte tokens")
    _set(patient, gguf, key, np.where(types == BYTE, NORMAL, types).astype(types.dtype))
    return Location(file=gguf.file, key=key)


def _spelled(patient: Patient) -> tuple[StoredTokenizer, Spelling]:
    stored: StoredTokenizer | None = patient.evidence.find("stored_tokenizer")
    spelling: Spelling | None = patient.evidence.find("spelling")
    if stored is None or spelling is None or spelling.space is None:
        raise NotApplicable("no tokenizer.json with a known spelling")
    return stored, spelling


def _set_decoder(patient: Patient, stored: StoredTokenizer, decoder: dict[str, Any] | None) -> Location:
    patient.workspace.json(stored.file)["decoder"] = decoder
    return Location(file=stored.file, key="decoder")


def _without(patient: Patient, stored: StoredTokenizer, is_out: Any) -> Location:
    chain: list[Stage] = stored.stages("decoder")
    kept = [step for step in chain if not is_out(step)]
    if kept == chain:
        raise NotApplicable("the decoder has no such step")
    return _set_decoder(patient, stored, sequence_of("decoder", kept))


def _gguf(patient: Patient) -> GgufFile:
    gguf: GgufFile | None = patient.evidence.find("gguf")
    if gguf is None:
        raise NotApplicable("no GGUF file")
    return gguf


def _set(patient: Patient, gguf: GgufFile, key: str, value: object) -> None:
    shard: Any = patient.workspace.shard(gguf.file)
    shard.set_metadata(key, value)

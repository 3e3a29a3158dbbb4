"""Plants TOK414."""

from __future__ import annotations

from typing import Any

from degarble.evidence.stored_tokenizer import StoredTokenizer
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.vocabulary_edit import retyped_piece, set_token_type, vocabulary_of
from degarble.finding import Location
from degarble.tokenizer.byte_alphabet import byte_letters
from degarble.tokenizer.gguf_vocabulary import CONTROL, NORMAL, UNUSED
from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.spelling import BYTE_NAMES, Spelling
from degarble.tokenizer.stages import sequence_of
from degarble.tokenizer.unicode_bytes import IN_USE

STRIP_END = {"type": "Strip", "content": " ", "start": 0, "stop": 1}
STRIP_INDENT = {"type": "Strip", "content": " ", "start": 4, "stop": 0}
ONE_SPACE = {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}
NO_SPACE = {"type": "Replace", "pattern": {"String": " ."}, "content": "."}
NO_REPEATS = {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": False}


@fault("TOK414")
def stream_decode_lossy(patient: Patient) -> Location:
    """Strip a space at the end of what is decoded: every chunk of a stream loses one."""
    return _append(patient, STRIP_END)


@fault("TOK414")
def indentation_stripped(patient: Patient) -> Location:
    """Strip four spaces where a text begins, which is one level of indentation."""
    return _append(patient, STRIP_INDENT)


@fault("TOK414")
def spaces_collapsed(patient: Patient) -> Location:
    """Make one space of several after the text was put together."""
    return _append(patient, ONE_SPACE)


@fault("TOK414")
def punctuation_joined(patient: Patient) -> Location:
    """Clean up spaces before full stops in the decoder itself."""
    return _append(patient, NO_SPACE)


@fault("TOK414")
def repeats_collapsed(patient: Patient) -> Location:
    """Decode as for speech, where a token that is repeated counts once."""
    stored = _stored(patient)
    chain = stored.stages("decoder")
    document = patient.workspace.json(stored.file)
    document["decoder"] = {"type": "Sequence", "decoders": [NO_REPEATS, *(dict(step.settings) for step in chain)]}
    return Location(file=stored.file, key="decoder.decoders.0")


@fault("TOK414")
def every_token_stripped(patient: Patient) -> Location:
    """Take Fuse out from before Strip, so that not the text but each token is stripped."""
    stored = _stored(patient)
    kept = [step for step in stored.stages("decoder") if step.kind != "Fuse"]
    if not any(step.kind == "Strip" for step in kept) or len(kept) == len(stored.stages("decoder")):
        raise NotApplicable("no Strip behind a Fuse")
    patient.workspace.json(stored.file)["decoder"] = sequence_of("decoder", kept)
    at = next(at for at, step in enumerate(kept) if step.kind == "Strip")
    return Location(file=stored.file, key=f"decoder.decoders.{at}")


@fault("TOK414")
def text_byte_special(patient: Patient) -> Location:
    """Flag the token of a byte as special."""
    vocabulary = vocabulary_of(patient)
    tokenizer, name = vocabulary.tokenizer, _byte_piece(patient)
    at = tokenizer.ids_by_piece[name]
    if vocabulary.is_gguf:
        return set_token_type(patient, tokenizer, at, CONTROL)
    flags: dict[str, Any] = {"content": name, "special": True}
    flags |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    patient.workspace.json(tokenizer.file)["added_tokens"].append({"id": at, **flags})
    if "tokenizer_config.json" in patient.workspace.files():
        decoder = patient.workspace.json("tokenizer_config.json").get("added_tokens_decoder")
        if isinstance(decoder, dict):
            decoder[str(at)] = flags
    return Location(file=tokenizer.file, key="added_tokens", token_id=at)


@fault("TOK414")
def text_piece_unused(patient: Patient) -> Location:
    """Type an ordinary piece of a GGUF vocabulary as unused, which prints nothing."""
    vocabulary = vocabulary_of(patient)
    if not vocabulary.is_gguf:
        raise NotApplicable("no GGUF vocabulary")
    types = patient.evidence.find("token_types") or []
    pieces = vocabulary.tokenizer.pieces
    chosen = patient.pick(at for at, kind in enumerate(types) if kind == NORMAL and (pieces[at] or "").isalnum())
    return set_token_type(patient, vocabulary.tokenizer, chosen, UNUSED)


@fault("TOK414")
def text_piece_control(patient: Patient) -> Location:
    """Type an ordinary word of tokenizer.model as a control piece."""
    return retyped_piece(patient, CONTROL)


@fault("TOK414")
def sentencepiece_unused(patient: Patient) -> Location:
    """Type an ordinary word of tokenizer.model as unused."""
    return retyped_piece(patient, UNUSED)


def _stored(patient: Patient) -> StoredTokenizer:
    stored: StoredTokenizer | None = patient.evidence.find("stored_tokenizer")
    spelling: Spelling | None = patient.evidence.find("spelling")
    if stored is None or spelling is None or spelling.space is None:
        raise NotApplicable("no tokenizer.json with a known spelling")
    return stored


def _append(patient: Patient, step: dict[str, Any]) -> Location:
    stored = _stored(patient)
    chain = [dict(other.settings) for other in stored.stages("decoder")]
    patient.workspace.json(stored.file)["decoder"] = {"type": "Sequence", "decoders": [*chain, step]}
    return Location(file=stored.file, key=f"decoder.decoders.{len(chain)}")


def _byte_piece(patient: Patient) -> str:
    """The piece of a byte above U+007F, which no added token is yet."""
    spelling: Spelling | None = patient.evidence.find("spelling")
    tokenizer: Tokenizer = vocabulary_of(patient).tokenizer
    if spelling is None or not (spelling.is_byte_level or spelling.has_byte_fallback):
        raise NotApplicable("no bytes in the vocabulary")
    names = byte_letters() if spelling.is_byte_level else BYTE_NAMES
    listed = (names[byte] for byte in sorted(IN_USE) if byte >= 0x80 and names[byte] in spelling.pieces)
    return patient.pick(name for name in listed if tokenizer.ids_by_piece[name] not in tokenizer.added_tokens)

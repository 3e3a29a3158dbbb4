"""Edits that faults make in a vocabulary, whatever it is stored in, so that all files still agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from degarble.faults.interface import NotApplicable, Patient
from degarble.finding import Location
from degarble.tokenizer.chat_template import ChatTemplate
from degarble.tokenizer.gguf_vocabulary import NORMAL, PREFIX
from degarble.tokenizer.interface import AddedToken, Tokenizer
from degarble.tokenizer.merges import Merges
from degarble.tokenizer.sentencepiece_pieces import read_pieces, with_kind
from degarble.tokenizer.token_claims import TEXT_FILES, TEXT_LISTS, TokenClaim

MAX_LETTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The healthy vocabulary of a patient."""

    tokenizer: Tokenizer
    merged_pieces: frozenset[str]
    """Pieces that merges are made of."""

    @property
    def is_gguf(self) -> bool:
        """Whether it is metadata of a GGUF file."""
        return self.tokenizer.file.endswith(".gguf")


def vocabulary_of(patient: Patient) -> Vocabulary:
    """Raises NotApplicable where there is none that can be edited (tokenizer.model is one protobuf message)."""
    tokenizer: Tokenizer | None = patient.evidence.find("tokenizer")
    if tokenizer is None or not tokenizer.file.endswith((".json", ".gguf")):
        raise NotApplicable("no tokenizer.json and no GGUF vocabulary")
    return Vocabulary(tokenizer=tokenizer, merged_pieces=frozenset(_parts(tokenizer.merges)))


def _parts(merges: Merges) -> Iterable[str]:
    for merge in merges.stored:
        yield from merge.split(" ") if isinstance(merge, str) else merge


def unused_added(patient: Patient) -> AddedToken:
    """An added token of letters that has no role in any file and is in no chat template. Raises NotApplicable."""
    tokenizer = vocabulary_of(patient).tokenizer
    claims: Sequence[TokenClaim] = patient.evidence.find("token_claims") or ()
    templates: Sequence[ChatTemplate] = patient.evidence.find("chat_templates") or ()
    taken = {claim.text for claim in claims if claim.role} | {None}
    taken_ids = {claim.token_id for claim in claims if claim.role}
    text = "".join(template.text for template in templates) + str(tokenizer.pipeline.get("post_processor"))
    return patient.pick(
        token
        for token in tokenizer.added_tokens.values()
        if token.content not in taken
        and token.token_id not in taken_ids
        and token.content not in text
        and sum(map(str.isalpha, token.content)) > 2
    )


def rename_piece(patient: Patient, old: str, new: str) -> Location:
    """Give one id another text, in the vocabulary and in every file that lists it."""
    vocabulary = vocabulary_of(patient)
    tokenizer = vocabulary.tokenizer
    if new in tokenizer.ids_by_piece or old not in tokenizer.ids_by_piece:
        raise NotApplicable(f"{new!r} is a piece already")
    if vocabulary.is_gguf:
        return _rename_in_gguf(patient, tokenizer, old, new)
    document = patient.workspace.json(tokenizer.file)
    stored = document["model"]["vocab"]
    if isinstance(stored, dict):
        document["model"]["vocab"] = {new if piece == old else piece: at for piece, at in stored.items()}
    else:
        for row in stored:
            row[0] = new if row[0] == old else row[0]
    added = [token for token in document.get("added_tokens") or [] if token["content"] == old]
    for token in added:
        token["content"] = new
    _rename_beside(patient, old, new)
    return Location(file=tokenizer.file, key="added_tokens" if added else "model.vocab")


def _rename_in_gguf(patient: Patient, tokenizer: Tokenizer, old: str, new: str) -> Location:
    """A byte token that is renamed is no byte any more."""
    shard = patient.workspace.shard(tokenizer.file)
    at = tokenizer.ids_by_piece[old]
    tokens = list(tokenizer.pieces)
    tokens[at] = new
    shard.set_metadata(f"{PREFIX}tokens", tokens)  # type: ignore[attr-defined]
    if old.startswith("<0x"):
        set_token_type(patient, tokenizer, at, NORMAL)
    return Location(file=tokenizer.file, key=f"{PREFIX}tokens")


def set_token_type(patient: Patient, tokenizer: Tokenizer, token_id: int, kind: int) -> Location:
    """Change the type of one id in a GGUF file. Raises NotApplicable where there are no types."""
    key = f"{PREFIX}token_type"
    shard: Any = patient.workspace.shard(tokenizer.file)
    types = shard.metadata.get(key)
    if types is None:
        raise NotApplicable("no token types")
    types = types.copy()
    types[token_id] = kind
    shard.set_metadata(key, types)
    return Location(file=tokenizer.file, key=key, token_id=token_id)


def retyped_piece(patient: Patient, kind: int) -> Location:
    """Change the type of one ordinary word of a tokenizer.model. Raises NotApplicable where there is none."""
    tokenizer: Tokenizer | None = patient.evidence.find("tokenizer")
    if tokenizer is None or not tokenizer.file.endswith(".model"):
        raise NotApplicable("no tokenizer.model")
    pieces = read_pieces(tokenizer.raw, tokenizer.file)
    at = patient.pick(at for at, piece in enumerate(pieces) if piece.kind == NORMAL and is_ascii_word(piece.text))
    patient.workspace.write(tokenizer.file, with_kind(tokenizer.raw, pieces[at], kind))
    return Location(file=tokenizer.file, key="pieces", token_id=at)


def is_ascii_word(piece: str) -> bool:
    """A word that nothing but its letters tells from text."""
    return piece.isascii() and piece.isalpha() and 2 <= len(piece) <= MAX_LETTERS


def _rename_beside(patient: Patient, old: str, new: str) -> None:
    """The same text in the files beside tokenizer.json."""
    files = set(patient.workspace.files())
    for name in TEXT_FILES:
        if name in files:
            _rename_in(patient.workspace.json(name), old, new)
    if "added_tokens.json" in files:
        listed = patient.workspace.json("added_tokens.json")
        if old in listed:
            listed[new] = listed.pop(old)


def _rename_in(config: dict[str, Any], old: str, new: str) -> None:
    for entry in (config.get("added_tokens_decoder") or {}).values():
        if entry.get("content") == old:
            entry["content"] = new
    for name in TEXT_LISTS:
        if isinstance(config.get(name), list):
            config[name] = [new if token == old else token for token in config[name]]

"""Plants TOK420."""

from __future__ import annotations

from typing import Any

from degarble.checks.text.user_text_becomes_control import CONFIG, FLAGS
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.vocabulary_edit import is_ascii_word, retyped_piece, set_token_type, vocabulary_of
from degarble.finding import Location
from degarble.tokenizer.gguf_vocabulary import USER_DEFINED
from degarble.tokenizer.interface import Tokenizer

MIN_MARKERS = 4


@fault("TOK420")
def user_text_becomes_control(patient: Patient) -> Location:
    """Make an ordinary word of the vocabulary an added token."""
    return _add_word(patient, special=False)


@fault("TOK420")
def word_is_special(patient: Patient) -> Location:
    """Make an ordinary word of the vocabulary a special token."""
    return _add_word(patient, special=True)


@fault("TOK420")
def word_is_user_defined(patient: Patient) -> Location:
    """Type an ordinary word of tokenizer.model as user-defined."""
    return retyped_piece(patient, USER_DEFINED)


@fault("TOK420")
def added_token_flags_disagree(patient: Patient) -> Location:
    """Let a marker swallow spaces, or end at words only, in one of two files."""
    tokenizer = vocabulary_of(patient).tokenizer
    if not tokenizer.file.endswith(".json") or CONFIG not in patient.workspace.files():
        raise NotApplicable(f"no {CONFIG}")
    decoder = patient.workspace.json(CONFIG).get("added_tokens_decoder") or {}
    listed = [name for name, entry in decoder.items() if _agrees(tokenizer, name, entry)]
    name = patient.pick(listed)
    flag = patient.pick(FLAGS)
    decoder[name][flag] = not decoder[name].get(flag, False)
    return Location(file=CONFIG, key=f"added_tokens_decoder.{name}.{flag}")


@fault("TOK420")
def marker_swallows_spaces(patient: Patient) -> Location:
    """Let one marker take the spaces beside it along."""
    return _flag_marker(patient, patient.pick(("lstrip", "rstrip")))


@fault("TOK420")
def marker_between_spaces(patient: Patient) -> Location:
    """Let one marker count only where no letter stands beside it."""
    return _flag_marker(patient, "single_word")


def _flag_marker(patient: Patient, flag: str) -> Location:
    """In both files that have flags."""
    tokenizer = vocabulary_of(patient).tokenizer
    if not tokenizer.file.endswith(".json"):
        raise NotApplicable("no flags")
    if (
        any(token.lstrip or token.rstrip for token in tokenizer.added_tokens.values())
        or len(tokenizer.added_tokens) < MIN_MARKERS
    ):
        raise NotApplicable("too few markers, or some that are flagged already")
    token = patient.pick(
        token
        for token in tokenizer.added_tokens.values()
        if any(map(str.isalpha, token.content)) and not token.content.isalpha()
    )
    document = patient.workspace.json(tokenizer.file)
    next(entry for entry in document["added_tokens"] if entry["id"] == token.token_id)[flag] = True
    if CONFIG in patient.workspace.files():
        decoder = patient.workspace.json(CONFIG).get("added_tokens_decoder") or {}
        if str(token.token_id) in decoder:
            decoder[str(token.token_id)][flag] = True
    return Location(file=tokenizer.file, key="added_tokens", token_id=token.token_id)


def _agrees(tokenizer: Tokenizer, name: str, entry: dict[str, Any]) -> bool:
    token = tokenizer.added_tokens.get(int(name))
    return token is not None and all(entry.get(flag, False) is getattr(token, flag) for flag in FLAGS)


def _add_word(patient: Patient, *, special: bool) -> Location:
    vocabulary = vocabulary_of(patient)
    tokenizer = vocabulary.tokenizer
    words = [at for at, piece in enumerate(tokenizer.pieces) if piece and is_ascii_word(piece)]
    at = patient.pick(words)
    word = str(tokenizer.pieces[at])
    if vocabulary.is_gguf:
        if special:
            raise NotApplicable("the type that is found in user text is that of words")
        return set_token_type(patient, tokenizer, at, USER_DEFINED)
    flags: dict[str, Any] = {"content": word, "special": special}
    flags |= dict.fromkeys(FLAGS, False)
    patient.workspace.json(tokenizer.file)["added_tokens"].append({"id": at, **flags})
    if CONFIG in patient.workspace.files():
        decoder = patient.workspace.json(CONFIG).get("added_tokens_decoder")
        if isinstance(decoder, dict):
            decoder[str(at)] = flags
    return Location(file=tokenizer.file, key="added_tokens", token_id=at)

"""Types and flags that hide text, or show bytes as they are stored."""

from __future__ import annotations

import copy

from degarble.checkpoint.gguf import GgufFile
from degarble.finding import Finding
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.tokenizer.gguf_vocabulary import BYTE, NORMAL
from degarble.tokenizer.spelling import BYTE_NAMES, Spelling

TYPES = "tokenizer.ggml.token_type"
LISTED = "tokenizer_config.json"


@repair("remove-added-token")
def remove_added_token(job: Job) -> None:
    """Take ordinary words out of the added tokens.

    ## What it changes
    `added_tokens` of tokenizer.json: entries whose text is a piece of the vocabulary under the same id go.

    ## Why there is one answer
    There is not quite: the word stays a piece, and texts are cut as without the entry. But somebody may have trained
    with it, so the step is a judgement.

    ## What it cannot do
    Remove a token that the vocabulary does not hold: its id would be lost.
    """
    job.judge("the model may have been trained with the added token")
    file = job.finding.location.file or ""
    listed = job.value(file, "added_tokens") if file == "tokenizer.json" else None
    pieces = job.value(file, "model.vocab") if isinstance(listed, list) else None
    if not isinstance(listed, list) or not isinstance(pieces, dict):
        raise job.cannot(f"{file} is not written", files=[file])
    ids = {place.token: place.token_id for place in job.places if place.token is not None}
    lost = [text for text, at in ids.items() if pieces.get(text) != at]
    if lost:
        raise CannotRepair(f"{lost[0]!r} has its id from the entry alone")
    kept = [entry for entry in listed if not isinstance(entry, dict) or entry.get("content") not in ids]
    job.set_key(file, "added_tokens", kept, "ordinary words")


@repair("set-token-types")
def set_token_types(job: Job) -> None:
    """Give pieces of a GGUF vocabulary the types of text and of bytes.

    ## What it changes
    `tokenizer.ggml.token_type`, at the named ids alone.

    ## Why there is one answer
    `<0xHH>` in a vocabulary that falls back to bytes is a byte, type 6; any other text that is printed is of type 1.

    ## What it cannot do
    Write a sentencepiece model: tokenizer.model has to be fetched.
    """
    _set_types(job)


@repair("clear-special-flag")
def clear_special_flag(job: Job) -> None:
    """Show tokens that are bytes of text.

    ## What it changes
    The flag `special` of the tokens in tokenizer.json, and where tokenizer_config.json repeats it; in GGUF their type.
    A token that is a piece of the vocabulary under the same id is taken out of the added tokens instead.

    ## Why there is one answer
    The token is the only way to write its byte, a special token is left out of every answer, and an added one is never
    joined with its neighbours.

    ## What it cannot do
    Write a sentencepiece model.
    """
    if (job.finding.location.file or "").endswith(".gguf"):
        _set_types(job)
        return
    file = job.finding.location.file or ""
    texts = {place.token for place in job.places}
    listed = copy.deepcopy(job.value(file, "added_tokens")) if file == "tokenizer.json" else None
    if not isinstance(listed, list):
        raise job.cannot(f"{file} is not written", files=[file])
    pieces = job.value(file, "model.vocab")
    vocabulary = pieces if isinstance(pieces, dict) else {}
    kept = []
    for entry in listed:
        if isinstance(entry, dict) and entry.get("content") in texts:
            _repeat(job, entry.get("id"), entry.get("content"))
            if vocabulary.get(entry["content"]) == entry.get("id"):
                continue
            entry["special"] = False
        kept.append(entry)
    job.set_key(file, "added_tokens", kept, "shown as text")


def _repeat(job: Job, token_id: object, text: object) -> None:
    """Clear the flag in the list of tokenizer_config.json as well, if the same token stands there."""
    if LISTED not in job.workspace.files():
        return
    key = f"added_tokens_decoder.{token_id}"
    entry = job.value(LISTED, key)
    if isinstance(entry, dict) and entry.get("content") == text and entry.get("special") is True:
        job.set_key(LISTED, f"{key}.special", False, "as tokenizer.json has it")


def _set_types(job: Job) -> None:
    file = job.finding.location.file or ""
    if not file.endswith(".gguf"):
        raise job.cannot(f"{file} is not written", files=[file])
    gguf: GgufFile = job.need("gguf")
    spelling: Spelling = job.need("spelling")
    types = [int(one) for one in gguf.metadata.get(TYPES, ())]
    for single in job.singles():
        at = single.location.token_id
        if at is not None and at < len(types):
            types[at] = _right_type(single, spelling)
    job.set_metadata(file, TYPES, types, None, "the types of text and of bytes")


def _right_type(single: Finding, spelling: Spelling) -> int:
    told = single.bound.get("type")
    if isinstance(told, int):
        return told
    is_byte = spelling.has_byte_fallback and single.location.token in BYTE_NAMES
    return BYTE if is_byte else NORMAL

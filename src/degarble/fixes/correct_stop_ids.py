"""Stop tokens that the files agree on."""

from __future__ import annotations

from typing import Any

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim

ROLE = "eos_token"
UINT32 = (4, None)
EOT_KEY = "tokenizer.ggml.eot_token_id"


@repair("add-stop-id")
def add_stop_id(job: Job) -> None:
    """Add the token that ends an answer to the stop ids that engines obey.

    ## What it changes
    `eos_token_id` of generation_config.json or config.json becomes a list with the id at its end; where only
    tokenizer_config.json names a stop token, that becomes the token; a GGUF file gets `tokenizer.ggml.eot_token_id`.

    ## Why there is one answer
    The chat template ends every answer with one token, which is special. If there are several, or the token also opens
    turns, it is a judgement.

    ## What it cannot do
    Make an engine obey a file that it does not read.
    """
    place, token_id = job.finding.location, job.finding.bound.get("turn_end")
    if not isinstance(token_id, int) or not place.file or not place.key:
        raise CannotRepair("the finding names no token")
    if job.finding.fix is None or not job.finding.fix.safe:
        job.judge("the template may end an answer in another way")
    known: KnownTokens = job.need("known_tokens")
    if place.file.endswith(".gguf"):
        job.set_metadata(place.file, EOT_KEY, token_id, UINT32, "what the template ends an answer with")
    elif place.key.endswith("_id"):
        old = job.value(place.file, place.key)
        ids = old if isinstance(old, list) else [] if old is None else [old]
        job.set_key(place.file, place.key, [*ids, token_id], "with the end of an answer")
    else:
        job.set_key(place.file, place.key, known.text_of(token_id), "what the template ends an answer with")


@repair("correct-stop-id")
def correct_stop_id(job: Job) -> None:
    """Replace a stop id that is none by the one that the other files name.

    ## What it changes
    `eos_token_id` at the named place: an invalid id among valid ones is dropped, a number written as text becomes a
    number, a single invalid id is replaced.

    ## Why there is one answer
    Tokenizer, config and generation config name one valid stop token between them. Dropping an id that no token has
    changes nothing else.

    ## What it cannot do
    Choose where the files name several, or none.
    """
    known: KnownTokens = job.need("known_tokens")
    for file, key in dict.fromkeys((place.file or "", place.key or "") for place in job.places):
        if file.endswith(".gguf"):
            job.set_metadata(file, key, _only_named(job, known, file, key), None, "as the other places say")
            continue
        old = job.value(file, key)
        valid = [at for one in (old if isinstance(old, list) else [old]) if (at := _as_id(one, known)) is not None]
        if not valid:
            valid = [_only_named(job, known, file, key)]
        job.set_key(file, key, valid if isinstance(old, list) else valid[0], "valid stop ids alone")


def _as_id(value: Any, known: KnownTokens) -> int | None:
    """The id of a control token, also where it is written as text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    return value if type(value) is int and known.is_control(value) else None


def _only_named(job: Job, known: KnownTokens, file: str, key: str) -> int:
    """The stop token that all other places name."""
    claims: tuple[TokenClaim, ...] = job.need("token_claims")
    named = {
        at
        for claim in claims
        if claim.role == ROLE and (claim.file, claim.key) != (file, key)
        if (at := claim.token_id if claim.text is None else known.id_of(claim.text)) is not None
        if known.is_control(at)
    }
    if len(named) != 1:
        raise job.cannot(f"the other places name {len(named)} stop tokens", files=[file])
    return named.pop()

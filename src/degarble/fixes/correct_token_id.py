"""Ids of tokens in the files beside the tokenizer."""

from __future__ import annotations

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim

LISTED = "added_tokens_decoder."


@repair("correct-token-id")
def correct_token_id(job: Job) -> None:
    """Give a token the id that the tokenizer gives it, in the file that contradicts.

    ## What it changes
    Ids of roles in config.json and generation_config.json, and listed ids in added_tokens.json and tokenizer_config.json.

    ## Why there is one answer
    The tokenizer's own file decides: it is what encodes. Several texts for a role, or a file that two others outvote,
    make it a judgement. A role whose id has no row gets the one id that all other files give it, by text or by number.

    ## What it cannot do
    Change the tokenizer itself, or rows of the embedding. An id without a row is the wrong id or the wrong embedding.
    """
    place = job.finding.location
    known: KnownTokens = job.need("known_tokens")
    if job.finding.rule == "TOK403" and (outside := _roles_at(job)):
        for claim in outside:
            _set_id(job, claim.file, claim.key, _agreed(job, claim, known))
        return
    if place.file is None or place.file == known.tokenizer.file or job.finding.rule != "TOK402":
        raise job.cannot("the tokenizer's own file would have to change", files=[place.file or "tokenizer.json"])
    if job.finding.fix is None or not job.finding.fix.safe:
        job.judge("the tokenizer is taken to be right, and the other file wrong")
    claims: tuple[TokenClaim, ...] = job.need("token_claims")
    listed = [one for one in claims if one.file == place.file and one.text is not None and one.token_id is not None]
    wrong = [one for one in listed if known.id_of(one.text or "") not in (None, one.token_id)]
    for claim in wrong:
        _correct(job, claim, known.id_of(claim.text or ""))
    if not wrong:
        _correct_role(job)


def _correct(job: Job, claim: TokenClaim, token_id: int | None) -> None:
    """A listing by text, or one by id, whose entry moves to the other id."""
    if not claim.key.startswith(LISTED):
        job.set_key(claim.file, claim.key, token_id, "as the tokenizer has it")
        return
    entry = job.value(claim.file, claim.key)
    if job.value(claim.file, f"{LISTED}{token_id}") is not None:
        raise CannotRepair(f"{claim.file} lists another token under {token_id}")
    job.drop_key(claim.file, claim.key, "moved to the tokenizer's id")
    job.set_key(claim.file, f"{LISTED}{token_id}", entry, "as the tokenizer has it")


def _correct_role(job: Job) -> None:
    place, right = job.finding.location, job.finding.bound.get("id")
    if not place.file or not place.key or not isinstance(right, int):
        raise CannotRepair("the finding names no id")
    _set_id(job, place.file, place.key, right)


def _set_id(job: Job, file: str, key: str, token_id: int) -> None:
    if file.endswith(".gguf"):
        job.set_metadata(file, key, token_id, None, "as the tokenizer has it")
    else:
        job.set_key(file, key, token_id, "as the tokenizer has it")


def _roles_at(job: Job) -> list[TokenClaim]:
    """Bare ids of roles at the places of the finding."""
    places = {(place.file, place.key) for place in job.places}
    claims: tuple[TokenClaim, ...] = job.need("token_claims")
    return [one for one in claims if one.text is None and one.role is not None and (one.file, one.key) in places]


def _agreed(job: Job, wrong: TokenClaim, known: KnownTokens) -> int:
    """The one id with a row that everybody else gives the role. Raises CannotRepair."""
    rows = job.evidence.find("embedding_rows")
    claims: tuple[TokenClaim, ...] = job.need("token_claims")
    others = [one for one in claims if one.role == wrong.role and (one.file, one.key) != (wrong.file, wrong.key)]
    named = {known.id_of(one.text) if one.text is not None else one.token_id for one in others}
    fitting = {one for one in named if one is not None and one >= 0 and (rows is None or one < rows)}
    if len(fitting) != 1:
        say = "no other file names" if not fitting else f"{len(fitting)} different ids are given for"
        raise job.cannot(f"{say} the {wrong.role} of {wrong.file}", files=[wrong.file])
    return fitting.pop()

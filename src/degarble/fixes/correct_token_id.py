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
    make it a judgement.

    ## What it cannot do
    Change the tokenizer itself, or rows of the embedding. An id without a row is the wrong id or the wrong embedding.
    """
    place = job.finding.location
    known: KnownTokens = job.need("known_tokens")
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
    if place.file.endswith(".gguf"):
        job.set_metadata(place.file, place.key, right, None, "as the tokenizer has it")
    else:
        job.set_key(place.file, place.key, right, "as the tokenizer has it")

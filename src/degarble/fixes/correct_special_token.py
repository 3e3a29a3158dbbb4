"""Texts of special tokens in the files beside the tokenizer."""

from __future__ import annotations

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim

LIST = "additional_special_tokens"
NEUTRAL_CLASS = "PreTrainedTokenizerFast"


@repair("correct-special-token")
def correct_special_token(job: Job) -> None:
    """Name a token that the vocabulary has, or none, where a file names one that it lacks.

    ## What it changes
    The role's text becomes that of the token which the other files name for the role, by id or by text; an unknown
    entry of a list is taken out.

    ## Why there is one answer
    The other files name one token between them. That the name was wrong, and not the vocabulary, is a judgement.

    ## What it cannot do
    Choose where the other files name several tokens for the role, or none.
    """
    job.judge("the vocabulary is taken to be whole, and the name wrong")
    known: KnownTokens = job.need("known_tokens")
    claims: tuple[TokenClaim, ...] = job.need("token_claims")
    named = {(place.file, place.key) for place in job.places}
    wrong = [one for one in claims if (one.file, one.key) in named and one.text and known.id_of(one.text) is None]
    if not wrong:
        raise job.cannot("the tokenizer's own file names it", files=[job.finding.location.file or ""])
    for claim in sorted(wrong, key=lambda one: one.key, reverse=True):  # entries of a list from its end
        if claim.role == LIST:
            job.drop_key(claim.file, claim.key, "no token has this text")
        elif claim.role is not None:
            write_text(job, claim.file, claim.key, text_of_role(claims, known, claim.role))
        elif "." in claim.key.removeprefix("added_tokens_decoder."):
            raise CannotRepair(f"{claim.file} has a key with a dot: {claim.key}")
        else:
            job.drop_key(claim.file, claim.key, "the tokenizer has no such token")


def text_of_role(claims: tuple[TokenClaim, ...], known: KnownTokens, role: str) -> str:
    """The token that all claims for a role which name a known one name. Raises CannotRepair."""
    ids = {
        at
        for claim in claims
        if claim.role == role
        if (at := claim.token_id if claim.text is None else known.id_of(claim.text)) is not None
    }
    texts = {text for at in ids if (text := known.text_of(at)) is not None}
    if len(texts) != 1:
        raise CannotRepair(f"the other places name {len(texts)} tokens for {role}")
    return texts.pop()


def write_text(job: Job, file: str, key: str, text: str) -> None:
    """A token is written as a string, or as an object that holds it."""
    is_object = isinstance(job.value(file, key), dict)
    job.set_key(file, f"{key}.content" if is_object else key, text, "as the tokenizer has it")


@repair("restore-token-text")
def restore_token_text(job: Job) -> None:
    """Spell a token as the tokenizer does, in a file that spells it with characters that only look alike.

    ## What it changes
    The text at the named key.

    ## Why there is one answer
    One token of the tokenizer looks like it, and nothing else in the files is spelt in the other way.

    ## What it cannot do
    Change the tokenizer: where two files agree against it, it has to be fetched.
    """
    for single in job.singles():
        there, own = single.all_places[0], single.all_places[1]
        if not there.file or not there.key or not own.token or not there.file.endswith(".json"):
            raise job.cannot(f"{there.file} is not written", files=[there.file or ""])
        write_text(job, there.file, there.key, own.token)


@repair("name-neutral-tokenizer-class")
def name_neutral_class(job: Job) -> None:
    """Name the class that takes its whole pipeline from tokenizer.json.

    ## What it changes
    `tokenizer_class` of the named file.

    ## Why there is one answer
    The class brings a pipeline that the vocabulary contradicts; the neutral one brings none. But it also does nothing
    about BOS that the post-processor does not do, so the step is a judgement.

    ## What it cannot do
    Give an engine of old the right behaviour if it knows the class alone.
    """
    job.judge("the old class may have written BOS, which the neutral one leaves to the post-processor")
    place = job.finding.location
    if not place.file or not place.key:
        raise CannotRepair("the finding names no key")
    job.set_key(place.file, place.key, NEUTRAL_CLASS, "takes its pipeline from tokenizer.json")

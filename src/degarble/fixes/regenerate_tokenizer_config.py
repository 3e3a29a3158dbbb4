"""The files beside tokenizer.json, written again from it."""

from __future__ import annotations

from typing import Any

from degarble.fixes.correct_special_token import NEUTRAL_CLASS, text_of_role
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TOKEN_ROLES, TokenClaim

CONFIG, MAP = "tokenizer_config.json", "special_tokens_map.json"
FLAGS = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
OF_ANOTHER = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")


@repair("regenerate-tokenizer-config")
def regenerate_tokenizer_config(job: Job) -> None:
    """Write tokenizer_config.json and special_tokens_map.json from tokenizer.json and the ids in the configs.

    ## What it changes
    Roles get the text of the token whose id config.json and generation_config.json give them, and are dropped where
    these give none; the list of added tokens is that of tokenizer.json; the class becomes the neutral one; lists of
    further special tokens go. Settings that name no token stay.

    ## Why there is one answer
    There is nearly one: tokenizer.json is what encodes, and the ids are what engines stop at. But a role that only the
    lost file named is lost, so the step is a judgement.

    ## What it cannot do
    Bring back the chat template or the class of the release: fetch the file if there is a reference to fetch it from.
    """
    job.judge("roles and settings that only the lost file held are not brought back")
    known: KnownTokens = job.need("known_tokens")
    if known.tokenizer.file != "tokenizer.json":
        raise job.cannot("there is no tokenizer.json to write it from", files=[CONFIG])
    foreign = {place.file for place in job.places} & {CONFIG, MAP}
    claims: tuple[TokenClaim, ...] = tuple(one for one in job.need("token_claims") if one.file not in foreign)
    for file in sorted(name for name in foreign if name):
        _rewrite(job, file, claims, known)


def _rewrite(job: Job, file: str, claims: tuple[TokenClaim, ...], known: KnownTokens) -> None:
    old = job.json(file)
    if not isinstance(old, dict):
        raise CannotRepair(f"{file} holds no object")
    for role in TOKEN_ROLES:
        try:
            job.set_key(file, role, text_of_role(claims, known, role), "by its id")
        except CannotRepair:
            if role == "eos_token":
                raise
            job.drop_key(file, role, "no other file names it")
    for key in OF_ANOTHER:
        job.drop_key(file, key, "tokens of another family")
    if file == CONFIG:
        listed = {str(at): flags for at, flags in _added(job)}
        job.set_key(file, "added_tokens_decoder", listed, "as tokenizer.json has them")
        job.set_key(file, "tokenizer_class", NEUTRAL_CLASS, "takes its pipeline from tokenizer.json")


def _added(job: Job) -> list[tuple[int, dict[str, Any]]]:
    listed = job.value("tokenizer.json", "added_tokens")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return [(entry["id"], {key: entry[key] for key in FLAGS if key in entry}) for entry in entries if "id" in entry]

"""Control tokens that are stored as ordinary text."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job

CONTROL = 3
"""ggml's type of a control token."""
TYPES = "tokenizer.ggml.token_type"
NEW_TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


@repair("flag-special-token")
def flag_special_token(job: Job) -> None:
    """Add control tokens to the added tokens, and flag them special.

    ## What it changes
    `added_tokens` of tokenizer.json, or the types of a GGUF vocabulary.

    ## Why there is one answer
    A config gives the token the role of a control token, so that it must be found whole and never shown. A token that
    only a template or a family's table calls a marker is a judgement.

    ## What it cannot do
    Write a sentencepiece model.
    """
    file = job.finding.location.file or ""
    tokens = {place.token: place.token_id for place in job.places if place.token and place.token_id is not None}
    if job.finding.fix is None or not job.finding.fix.safe:
        job.judge("nothing but a table or a template calls these tokens control tokens")
    if file.endswith(".gguf"):
        gguf = job.need("gguf")
        types = [int(one) for one in gguf.metadata.get(TYPES, ())]
        for at in tokens.values():
            if at is not None and at < len(types):
                types[at] = CONTROL
        job.set_metadata(file, TYPES, types, None, "control tokens")
    elif file == "tokenizer.json":
        listed = job.value(file, "added_tokens")
        job.set_key(
            file, "added_tokens", _flagged(listed if isinstance(listed, list) else [], tokens), "flagged special"
        )
    else:
        raise CannotRepair(f"{file} is not written")


def _flagged(listed: list[Any], tokens: Mapping[str, int | None]) -> list[Any]:
    """All entries, those of the tokens special, new ones in the order of their ids."""
    found = copy.deepcopy(listed)
    known = {entry.get("content"): entry for entry in found if isinstance(entry, dict)}
    for text, at in tokens.items():
        if text in known:
            known[text]["special"] = True
        else:
            found.append({"id": at, "content": text, **NEW_TOKEN})
    return sorted(found, key=lambda entry: entry.get("id", 0) if isinstance(entry, dict) else 0)

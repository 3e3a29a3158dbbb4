"""Flags of added tokens that two files give differently."""

from __future__ import annotations

from degarble.fixes.interface import repair
from degarble.fixes.job import Job


@repair("align-added-token-flags")
def align_token_flags(job: Job) -> None:
    """Give tokenizer_config.json the flags that tokenizer.json has for the same tokens.

    ## What it changes
    Flags such as `normalized` below `added_tokens_decoder`.

    ## Why there is one answer
    tokenizer.json is what fast tokenizers obey; the other file repeats it.

    ## What it cannot do
    Say which of the two the model was trained with, if somebody changed tokenizer.json.
    """
    for one in job.singles():
        for flag, value in one.bound.items():
            place = one.location
            if place.file and place.key and place.file.endswith(".json"):
                key = place.key if place.key.endswith(f".{flag}") else f"{place.key}.{flag}"
                job.set_key(place.file, key, value, "as tokenizer.json has it")

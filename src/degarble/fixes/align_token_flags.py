"""Flags of added tokens that two files give differently, and steps of a decoder that spoil text."""

from __future__ import annotations

from degarble.fixes.interface import CannotRepair, repair
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


@repair("drop-decoder-step")
def drop_decoder_step(job: Job) -> None:
    """Take a step out of the decoder that turns right text into wrong text.

    ## What it changes
    One entry of the list of steps in tokenizer.json.

    ## Why there is one answer
    Without the step, tokens come out as the text they were made from; with it they do not.

    ## What it cannot do
    Replace a decoder that consists of this step alone.
    """
    for place in job.places:
        parent, _, number = (place.key or "").rpartition(".")
        steps = job.value(place.file or "", parent) if parent else None
        if not isinstance(steps, list) or not number.isdecimal() or int(number) >= len(steps):
            raise CannotRepair(f"{place.key} is no step of a list")
        kept = [step for at, step in enumerate(steps) if at != int(number)]
        job.set_key(place.file or "", parent, kept, "without the step that spoils text")

"""Switches of the tokenizer files that have one right position."""

from __future__ import annotations

from typing import Any

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job

POSITIONS: dict[str, Any] = {
    "switch-cleanup-off": False,
    "set-byte-fallback": True,
    "set-ignore-merges": True,
    "drop-stored-truncation": None,
}
"""Name of the repair -> the value that it writes."""


@repair("switch-cleanup-off", "set-byte-fallback", "set-ignore-merges", "drop-stored-truncation")
def set_text_switch(job: Job) -> None:
    """Put a switch of the tokenizer back: no clean-up of spaces, bytes for unknown characters, no stored truncation.

    ## What it changes
    One key of tokenizer.json or tokenizer_config.json.

    ## Why there is one answer
    The rest of the file says which position is right: byte pieces and their decoder are there, the vocabulary is a
    family's that needs whole pieces; and nobody wants generated text altered, or prompts cut.

    ## What it cannot do
    Change what was generated or trained with the other position.
    """
    fix = job.finding.fix
    if fix is None or fix.id not in POSITIONS:
        raise CannotRepair("the finding names no switch")
    for place in job.places:
        if place.file and place.key and place.file.endswith(".json"):
            job.set_key(place.file, place.key, POSITIONS[fix.id], "set to the position that fits the rest")

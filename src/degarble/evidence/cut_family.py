"""Evidence about which family's cuts a vocabulary was trained with."""

from __future__ import annotations

from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides
from degarble.tokenizer.cut_families import Recognised, recognise
from degarble.tokenizer.interface import Tokenizer


@provides("cut_family")
def cut_family(tokenizer: Tokenizer) -> Recognised:
    """Raises EvidenceMissing for a vocabulary that nobody wrote down."""
    found = recognise(tokenizer)
    if found is None:
        raise EvidenceMissing("the vocabulary is of no family whose cuts are known")
    return found

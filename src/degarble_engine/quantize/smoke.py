"""The result run once before it appears: how far its next tokens are from the original's, on a little text.

Both models walk side by side, a layer of each in memory. The number is no benchmark (the text is short, and may be that
of the calibration where the model has no tokenizer for another); what is not finite is refused.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from degarble.checkpoint.folder import LocalFolder
from degarble.errors import EvidenceMissing, TargetError
from degarble.evidence import Evidence, Settings
from degarble_engine.numerics.divergence import divergence
from degarble_engine.numerics.tokens import TokenBatch, built_in_texts, encode, random_batch
from degarble_engine.numerics.walk import final_states
from degarble_engine.numerics.walked_model import WalkedModel

TEXTS, TOKENS = 4, 48


def smoke(folder: Path, original: WalkedModel) -> dict[str, Any]:
    """KL divergence and agreement. Raises TargetError where the result gives numbers that are none."""
    made = WalkedModel(Evidence(LocalFolder(folder), Settings()))
    batch = _text(original)
    states = final_states([original, made], batch)
    found = divergence(original, states[0], made, states[1])
    if not math.isfinite(found.kl):
        raise TargetError("the result was run, and its logits are not finite: not written")
    return {
        "text": batch.origin,
        "tokens": batch.num_tokens,
        "kl_divergence": found.kl,
        "top1_agreement": found.top1_agreement,
    }


def _text(model: WalkedModel) -> TokenBatch:
    try:
        return encode(built_in_texts()[:TEXTS], [model.evidence], "built-in texts", TOKENS)
    except EvidenceMissing:
        return random_batch(model.vocab_size, 2, TOKENS)

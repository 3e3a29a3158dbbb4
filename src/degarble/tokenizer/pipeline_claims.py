"""What the pipeline inside tokenizer.json says about tokens: the texts and ids that its post-processor inserts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from degarble.tokenizer.interface import Tokenizer
from degarble.tokenizer.token_claims import TokenClaim

MAX_CLAIMS = 1000
PAIRS = ("sep", "cls")
"""BertProcessing and RobertaProcessing write their tokens as pairs of text and id."""


def pipeline_claims(tokenizer: Tokenizer) -> tuple[TokenClaim, ...]:
    """Statements that the file makes about its own vocabulary; values of other types are left to other rules."""
    found: list[TokenClaim] = []
    for claim in _claims(tokenizer):
        found.append(claim)
        if len(found) == MAX_CLAIMS:
            break
    return tuple(found)


def _claims(tokenizer: Tokenizer) -> Iterator[TokenClaim]:
    model = tokenizer.pipeline.get("model")
    unknown = model.get("unk_token") if isinstance(model, Mapping) else None
    if isinstance(unknown, str):
        yield TokenClaim(file=tokenizer.file, key="model.unk_token", role="unk_token", text=unknown)
    yield from _of_processor(tokenizer.file, "post_processor", tokenizer.pipeline.get("post_processor"))


def _of_processor(file: str, key: str, stored: Any) -> Iterator[TokenClaim]:
    if not isinstance(stored, Mapping):
        return
    inner = stored.get("processors")
    for at, processor in enumerate(inner if isinstance(inner, list) else ()):
        if isinstance(processor, Mapping) and "processors" not in processor:
            yield from _of_processor(file, f"{key}.processors.{at}", processor)
    tokens = stored.get("special_tokens")
    for text, entry in tokens.items() if isinstance(tokens, Mapping) else ():
        parts, ids = (entry.get("tokens"), entry.get("ids")) if isinstance(entry, Mapping) else (None, None)
        if not isinstance(parts, list) or not isinstance(ids, list):
            continue
        for part, token_id in zip(parts, ids, strict=False):
            if isinstance(part, str) and type(token_id) is int:
                place = f"{key}.special_tokens.{text}"
                yield TokenClaim(file=file, key=place, text=part, token_id=token_id)
    for name in PAIRS:
        pair = stored.get(name)
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int:
            yield TokenClaim(file=file, key=f"{key}.{name}", text=pair[0], token_id=pair[1])

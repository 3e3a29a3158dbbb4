"""How single tokens are written in answers: text, bytes, and log probabilities that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from degarble.tokenizer.byte_table import ByteTable
from degarble_engine.engine.sampler import Sampled

LEAST_LOGPROB = -9999.0
"""OpenAI's and vLLM's stand-in for minus infinity, which JSON does not have."""


def token_bytes(table: ByteTable, token_id: int) -> bytes:
    """Bytes of one token; none for an id without a string."""
    return table.bytes_of(token_id) or b""


def token_text(table: ByteTable, token_id: int) -> str:
    """Text of one token, with U+FFFD where its bytes are no whole characters."""
    return token_bytes(table, token_id).decode("utf-8", "replace")


def token_name(table: ByteTable, token_id: int) -> str:
    r"""Text that no two tokens share: `bytes:\xe5\x9b` where the bytes are no whole characters, as OpenAI writes it."""
    data = token_bytes(table, token_id)
    try:
        return data.decode() or f"token_id:{token_id}"
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def finite(logprob: float | None) -> float | None:
    """None for a NaN, which is no probability at all."""
    if logprob is None or math.isnan(logprob):
        return None
    return max(logprob, LEAST_LOGPROB)


def chat_logprobs(table: ByteTable, tokens: Sequence[Sampled]) -> dict[str, Any]:
    """`choices[].logprobs` of a chat."""
    content = []
    for token in tokens:
        top = [_entry(table, token_id, logprob) for token_id, logprob in token.top]
        content.append({**_entry(table, token.token_id, token.logprob), "top_logprobs": top})
    return {"content": content, "refusal": None}


def _entry(table: ByteTable, token_id: int, logprob: float | None) -> dict[str, Any]:
    data = token_bytes(table, token_id)
    return {"token": data.decode("utf-8", "replace"), "logprob": finite(logprob), "bytes": list(data)}


def completion_logprobs(table: ByteTable, tokens: Sequence[Sampled], offsets: Sequence[int]) -> dict[str, Any]:
    """`choices[].logprobs` of a completion; `offsets` in characters of the text."""
    tops = [
        {token_name(table, token_id): finite(logprob) for token_id, logprob in [*token.top, _own(token)]}
        for token in tokens
    ]
    return {
        "tokens": [token_name(table, token.token_id) for token in tokens],
        "token_logprobs": [finite(token.logprob) for token in tokens],
        "top_logprobs": tops,
        "text_offset": list(offsets),
    }


def _own(token: Sampled) -> tuple[int, float]:
    return token.token_id, token.logprob if token.logprob is not None else math.nan

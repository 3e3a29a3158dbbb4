"""The tokenizer inside a GGUF file: `tokenizer.ggml.*` metadata.

Token types (ggml's `llama_token_type`): 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte. llama.cpp
writes control, unknown and user-defined tokens as they stand, unused ones not at all, and only normal ones through the
byte alphabet (`gpt2`) or with U+2581 as a space (`llama`, `t5`). An id typed wrongly therefore prints wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from degarble.errors import EvidenceMissing, EvidenceUnjudged, MalformedFile
from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.byte_table import ByteTable
from degarble.tokenizer.decoder_pipeline import BYTE_TOKEN, METASPACE
from degarble.tokenizer.interface import AddedToken, Tokenizer
from degarble.tokenizer.merges import Merges
from degarble.tokenizer.vocabulary import MAX_TOKEN_IDS

PREFIX = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
KINDS: Mapping[str, str] = {
    "gpt2": "byte-level",
    "llama": "byte-fallback",
    "t5": "metaspace",
    "gemma4": "byte-fallback",
}
"""`tokenizer.ggml.model` -> how its ids become bytes."""
ADDS_SPACE = ("llama", "t5")
"""Models whose `add_space_prefix` is true where the file does not say."""
ROLES = {"bos": "bos_token", "eos": "eos_token", "eot": "eot_token", "padding": "pad_token", "unknown": "unk_token"}


def read_gguf_vocabulary(metadata: Mapping[str, Any], file: str) -> Tokenizer:
    """From the metadata of a GGUF header. Raises EvidenceMissing, EvidenceUnjudged or MalformedFile."""
    model = metadata.get(f"{PREFIX}model")
    tokens = metadata.get(f"{PREFIX}tokens")
    if model is None or tokens is None:
        raise EvidenceMissing(f"{file}: no tokenizer in its metadata")
    if not isinstance(model, str) or model not in KINDS:
        raise EvidenceUnjudged(f"{file}: {PREFIX}model is {model!r:.80}; known: {', '.join(KINDS)}")
    if not isinstance(tokens, list) or len(tokens) > MAX_TOKEN_IDS or not all(isinstance(t, str) for t in tokens):
        raise MalformedFile(file, f"{PREFIX}tokens", f"at most {MAX_TOKEN_IDS} strings", type(tokens).__name__)
    types = _types(metadata, file, len(tokens))
    kind = KINDS[model]
    space = metadata.get(f"{PREFIX}add_space_prefix", model in ADDS_SPACE)
    return Tokenizer(
        file=file,
        kind=kind,
        pieces=tokens,
        added_tokens={
            at: AddedToken(token_id=at, content=tokens[at], special=kind_of in (CONTROL, UNKNOWN))
            for at, kind_of in enumerate(types)
            if kind_of in (CONTROL, UNKNOWN, USER_DEFINED)
        },
        build_table=lambda: _table(kind, tokens, types, strip=int(bool(space)) if model in ADDS_SPACE else 0),
        pipeline={
            key.removeprefix(PREFIX): value
            for key, value in metadata.items()
            if key.startswith(PREFIX) and not isinstance(value, list) and getattr(value, "ndim", 0) == 0
        },
        declared={file: _declared(metadata, tokens)},
        merges=Merges(listed=_merges(metadata)),
    )


def _types(metadata: Mapping[str, Any], file: str, count: int) -> Sequence[int]:
    stored = metadata.get(f"{PREFIX}token_type")
    if stored is None:
        return [NORMAL] * count
    values = stored.tolist() if isinstance(stored, np.ndarray) else stored
    if not isinstance(values, list) or not all(isinstance(one, int | np.integer) for one in values):
        raise MalformedFile(file, f"{PREFIX}token_type", "whole numbers", type(stored).__name__)
    if len(values) != count:
        raise MalformedFile(file, f"{PREFIX}token_type", f"{count} types, one a token", f"{len(values)}")
    return [int(one) for one in values]


def _merges(metadata: Mapping[str, Any]) -> list[Any]:
    """A sentencepiece vocabulary has none: its scores say which pieces come first."""
    stored = metadata.get(f"{PREFIX}merges")
    return stored if isinstance(stored, list) else []


def _declared(metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, str]:
    named = {role: metadata.get(f"{PREFIX}{key}_token_id") for key, role in ROLES.items()}
    return {role: tokens[at] for role, at in named.items() if isinstance(at, int) and 0 <= at < len(tokens)}


def _table(kind: str, tokens: Sequence[str], types: Sequence[int], *, strip: int) -> ByteTable:
    return ByteTable(pieces=[_piece(kind, text, of) for text, of in zip(tokens, types, strict=True)], strip=strip)


def _piece(kind: str, text: str, token_type: int) -> bytes | None:
    """Names that are no UTF-8 came in as surrogates and leave as the bytes they were."""
    if token_type == UNUSED:
        return None
    verbatim = text.encode("utf-8", "surrogateescape")
    if token_type in (CONTROL, UNKNOWN, USER_DEFINED):
        return verbatim
    if kind == "byte-level":
        data = letters_to_bytes(text)
        return verbatim if data is None else data
    byte = BYTE_TOKEN.match(text) if token_type == BYTE else None
    return bytes.fromhex(byte[1]) if byte else text.replace(METASPACE, " ").encode("utf-8", "surrogateescape")

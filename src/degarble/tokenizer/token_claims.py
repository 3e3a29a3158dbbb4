"""What each file of a checkpoint says about single tokens: a text, an id, a role, or several of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from degarble.checkpoint.json_file import JsonFile

TOKEN_ROLES = (
    "bos_token",
    "eos_token",
    "eot_token",
    "eom_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "image_token",
    "audio_token",
    "video_token",
)
ID_FILES = ("config.json", "generation_config.json")
"""Files that give roles to ids: `eos_token_id`, one or a list."""
TEXT_FILES = ("tokenizer_config.json", "special_tokens_map.json")
"""Files that give roles to texts."""
TEXT_LISTS = ("additional_special_tokens", "extra_special_tokens")
GGUF_IDS = {
    "bos_token_id": "bos_token",
    "eos_token_id": "eos_token",
    "eot_token_id": "eot_token",
    "eom_token_id": "eom_token",
    "unknown_token_id": "unk_token",
    "seperator_token_id": "sep_token",  # spelt so in GGUF
    "padding_token_id": "pad_token",
    "cls_token_id": "cls_token",
    "mask_token_id": "mask_token",
}
NESTED = ("text_config", "llm_config", "language_config")


class TokenClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One statement: `tokenizer_config.json` calls the text `</s>` the role `eos_token`."""

    file: str
    key: str
    """Dotted key as written in the file."""
    role: str | None = None
    """One of TOKEN_ROLES, `additional_special_tokens`, or None for a mere listing."""
    text: str | None = None
    token_id: int | None = None
    special: bool | None = None


def read_token_claims(
    json_files: Mapping[str, JsonFile], gguf_file: str, gguf_metadata: Mapping[str, Any]
) -> tuple[TokenClaim, ...]:
    """All claims outside the tokenizer itself. Files that are unreadable or hold other values are left to other rules."""
    return (
        *(claim for file in TEXT_FILES for claim in _texts(file, _object(json_files, file))),
        *_added_tokens(_object(json_files, "added_tokens.json")),
        *(claim for file in ID_FILES for claim in _ids(file, "", _object(json_files, file))),
        *_gguf_ids(gguf_file, gguf_metadata),
    )


def _object(json_files: Mapping[str, JsonFile], file: str) -> Mapping[str, Any]:
    value = json_files[file].value if file in json_files else None
    return value if isinstance(value, dict) else {}


def _texts(file: str, values: Mapping[str, Any]) -> Iterator[TokenClaim]:
    for role in TOKEN_ROLES:
        yield from _text(file, role, role, values.get(role))
    for name in TEXT_LISTS:
        listed = values.get(name)
        pairs = listed.items() if isinstance(listed, dict) else enumerate(listed) if isinstance(listed, list) else ()
        for at, token in pairs:
            yield from _text(file, f"{name}.{at}", "additional_special_tokens", token)
    decoder = values.get("added_tokens_decoder")
    for at, token in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(token, dict) and isinstance(token.get("content"), str) and at.isdecimal() and at.isascii():
            yield TokenClaim(
                file=file,
                key=f"added_tokens_decoder.{at}",
                text=token["content"],
                token_id=int(at[:20]),
                special=token.get("special") is True,
            )


def _text(file: str, key: str, role: str, token: object) -> Iterator[TokenClaim]:
    """A token is written as a string, or as an object with its flags."""
    content = token.get("content") if isinstance(token, dict) else token
    if isinstance(content, str):
        yield TokenClaim(file=file, key=key, role=role, text=content)


def _added_tokens(values: Mapping[str, Any]) -> Iterator[TokenClaim]:
    for text, token_id in values.items():
        if type(token_id) is int:
            yield TokenClaim(file="added_tokens.json", key=text, text=text, token_id=token_id)


def _ids(file: str, path: str, values: Mapping[str, Any]) -> Iterator[TokenClaim]:
    for role in TOKEN_ROLES:
        stored = values.get(f"{role}_id")
        for at in stored if isinstance(stored, list) else [stored]:
            if type(at) is int:
                yield TokenClaim(file=file, key=f"{path}{role}_id", role=role, token_id=at)
    for outer in NESTED if not path else ():
        if isinstance(values.get(outer), dict):
            yield from _ids(file, f"{outer}.", values[outer])


def _gguf_ids(file: str, metadata: Mapping[str, Any]) -> Iterator[TokenClaim]:
    for name, role in GGUF_IDS.items():
        key = f"tokenizer.ggml.{name}"
        if type(metadata.get(key)) is int:
            yield TokenClaim(file=file, key=key, role=role, token_id=metadata[key])

"""Which ids a reader should not see, and what the files beside the tokenizer call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from degarble.checkpoint.interface import Source
from degarble.checkpoint.json_file import read_json
from degarble.errors import UsageError
from degarble.tokenizer.interface import Tokenizer

DECLARING_FILES = ("tokenizer_config.json", "special_tokens_map.json")
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class SpecialTokenPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream does with special tokens. A parser of tool calls needs some that a user must not see."""

    hide_special: bool = True
    """Leave out what the tokenizer flags as special, as `skip_special_tokens` does."""
    keep: frozenset[str] = frozenset()
    """Special tokens that are shown all the same."""
    hide: frozenset[str] = frozenset()
    """Other tokens that are left out: DeepSeek-V3 does not flag `<｜User｜>` as special."""

    def hidden_ids(self, tokenizer: Tokenizer) -> frozenset[int]:
        """Ids that add nothing to the text. Raises UsageError for a name that the tokenizer does not have."""
        ids = {name: tokenizer.ids_by_piece.get(name) for name in self.keep | self.hide}
        unknown = sorted(name for name, at in ids.items() if at is None)
        if unknown:
            raise UsageError(f"{tokenizer.file} has no token {', '.join(map(repr, unknown))}")
        special = tokenizer.special_ids if self.hide_special else frozenset()
        return (special - {ids[name] for name in self.keep}) | {
            at for name in self.hide if (at := ids[name]) is not None
        }


SKIP = SpecialTokenPolicy()
KEEP = SpecialTokenPolicy(hide_special=False)


def read_declared(source: Source) -> Mapping[str, Mapping[str, str]]:
    """File -> role -> token, as the files beside the tokenizer say. Unreadable files are left to other rules."""
    declared: dict[str, Mapping[str, str]] = {}
    for file in DECLARING_FILES:
        if file in source.files():
            value = read_json(source, file).value
            if isinstance(value, dict):
                declared[file] = {role: text for role in ROLES if (text := _content(value.get(role))) is not None}
    return declared


def _content(value: Any) -> str | None:
    """A token is written as a string, or as an object with its flags."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None

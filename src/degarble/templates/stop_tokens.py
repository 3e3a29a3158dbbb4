"""Which tokens end a turn by their name, and which ids an engine stops at, by the file that says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import msgspec

from degarble.tokenizer.token_claims import TEXT_FILES, TokenClaim

STOP_ROLES = ("eos_token", "eot_token", "eom_token")
TURN_END = re.compile(
    r"<\|(im_end|eot_id|eot|eom_id|end|return|call|end_of_turn|endofturn|end_of_role|end_of_turn_token|im_sep)\|>"
    r"|\[\|endofturn\|\]|<end_of_turn>|<turn\|>|<end_of_utterance>|<eot>",
    re.IGNORECASE,
)
"""Names of tokens that end a turn and not a text; `<|endoftext|>` and `</s>` end both."""
LLAMA_CPP_NAMES = frozenset(
    (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<EOT>",
        "<|end_of_text|>",
        "<end_of_utterance>",
    )
)
"""Tokens at which llama.cpp stops whatever the file says (llama-vocab.cpp, 2025)."""


def is_turn_end(text: str) -> bool:
    """Whether the name says so."""
    return TURN_END.fullmatch(text) is not None


class StopIds(msgspec.Struct, frozen=True, kw_only=True):
    """Stop ids by the place that names them."""

    by_file: Mapping[str, frozenset[int]]
    keys: Mapping[str, str]
    """File -> the key that names them."""

    @property
    def all(self) -> frozenset[int]:
        """Their union."""
        return frozenset().union(*self.by_file.values())

    @property
    def obeyed_file(self) -> str | None:
        """What decides in transformers: generation_config.json, else config.json, else what there is."""
        order = ("generation_config.json", "config.json", *self.by_file)
        return next((file for file in order if file in self.by_file), None)


def read_stop_ids(claims: Iterable[TokenClaim], id_of: Callable[[str], int | None]) -> StopIds:
    """From all claims; `id_of` knows the tokens. Texts that are no token are left to TOK401."""
    by_file: dict[str, set[int]] = {}
    keys: dict[str, str] = {}
    for claim in claims:
        if claim.role not in STOP_ROLES:
            continue
        token_id = claim.token_id
        if token_id is None and claim.text is not None and claim.file in TEXT_FILES:
            token_id = id_of(claim.text)
        if token_id is not None:
            by_file.setdefault(claim.file, set()).add(token_id)
            keys.setdefault(claim.file, claim.key)
    return StopIds(by_file={file: frozenset(ids) for file, ids in by_file.items()}, keys=keys)

"""Published families of tokenizers, told by special tokens that belong together (data/tokenizer/families.toml).

A family is known by texts *and* ids: DeepSeek V2 and V3 share every text that matters and no id. Which family a
vocabulary is of follows from the vocabulary alone; the architecture of the model is no evidence, since distilled
models carry another family's tokenizer on purpose.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

MIN_MATCHED = 3
"""Known pieces at their ids that make a family; fewer are met by chance (`<unk>` is 0 almost everywhere)."""
MIN_SHARE = 0.7
"""Of a family's pieces with known ids. Fine-tunes rename some of the reserved ones; releases drop a few."""
MAX_NAMES = 8
ROLES = {"bos_token": "bos", "eos_token": "eos", "eot_token": "eos", "eom_token": "eos", "pad_token": "pad"}


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family's specials."""

    name: str
    lineage: str
    """Generations of one maker: they share texts, so a text alone cannot tell them apart."""
    ids: Mapping[str, int]
    """Text -> id, where the id is known."""
    special: Mapping[str, bool]
    """Text -> how it is flagged, where that is known."""
    texts: frozenset[str]
    """All texts, ids known or not."""
    roles: Mapping[str, frozenset[str]]
    """`bos`, `eos`, `pad` -> texts that published files give the role; `eos` is everything that may stop an answer."""
    given_ids: Mapping[str, frozenset[int]]
    """The same as ids, with those that published configs give without a text."""
    rows: frozenset[int]
    reserved: tuple[str, ...]
    """Beginnings of tokens that no training touched."""
    ordinary: Mapping[str, int]
    """Ordinary pieces that tell this vocabulary from another with the same specials."""
    plain_turns: bool
    """Turns are marked by words: a template shows nothing of this family."""

    @cached_property
    def role_ids(self) -> Mapping[str, frozenset[int]]:
        """`bos`, `eos`, `pad` -> ids."""
        return {
            role: self.given_ids[role] | {self.ids[text] for text in texts if text in self.ids}
            for role, texts in self.roles.items()
        }

    @property
    def first_id(self) -> int:
        """The lowest id of its specials."""
        return min(self.ids.values(), default=0)

    def is_reserved(self, text: str) -> bool:
        """Whether the token is a placeholder."""
        return bool(self.reserved) and text.startswith(self.reserved)

    def share_in(self, pieces: Sequence[str | None]) -> tuple[float, int]:
        """Share and number of its known pieces that stand at their ids; (0, 0) if an ordinary one contradicts."""
        if any(at >= len(pieces) or pieces[at] != text for text, at in self.ordinary.items()):
            return 0.0, 0
        matched = sum(at < len(pieces) and pieces[at] == text for text, at in self.ids.items()) + len(self.ordinary)
        return matched / max(1, len(self.ids) + len(self.ordinary)), matched


@cache
def families() -> tuple[Family, ...]:
    """Every family there is data for."""
    return tuple(_family(entry) for entry in _table()["family"])


@cache
def generic_texts() -> frozenset[str]:
    """Texts that many makers use; one of them alone says nothing about the family."""
    return frozenset(_table()["generic"])


@cache
def all_texts() -> frozenset[str]:
    """Texts of all families."""
    return frozenset(text for family in families() for text in family.texts)


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads((files("degarble.data") / "tokenizer" / "families.toml").read_text(encoding="utf-8"))


def _family(entry: Mapping[str, Any]) -> Family:
    flagged: dict[str, int] = entry.get("special", {})
    plain: dict[str, int] = entry.get("plain", {})
    ids = {**flagged, **plain, **entry.get("unflagged", {})}
    roles = {role: frozenset(entry[role]) for role in ("bos", "eos", "pad")}
    return Family(
        name=entry["name"],
        lineage=entry["lineage"],
        ids=ids,
        special={**dict.fromkeys(flagged, True), **dict.fromkeys(plain, False)},
        texts=frozenset(ids).union(entry.get("texts", ()), *roles.values()),
        roles=roles,
        given_ids={role: frozenset(entry.get(f"{role}_ids", ())) for role in roles},
        rows=frozenset(entry["rows"]),
        reserved=tuple(entry.get("reserved", ())),
        ordinary=entry.get("ordinary", {}),
        plain_turns=entry.get("plain_turns", False),
    )


def identify(pieces: Sequence[str | None]) -> tuple[Family, ...]:
    """The family of a vocabulary; several where nothing tells them apart, none if nobody knows it."""
    scores = {family.name: family.share_in(pieces) for family in families()}
    able = {name: score for name, score in scores.items() if score[0] >= MIN_SHARE and score[1] >= MIN_MATCHED}
    if not able:
        return ()
    best = max(able.values(), key=lambda score: (score[1], score[0]))
    return tuple(family for family in families() if able.get(family.name) == best)


def names_of(found: Iterable[Family]) -> str:
    """`DeepSeek V3, R1 or V4`: makers once, generations after them."""
    parts: list[str] = []
    lineage = ""
    for family in list(found)[:MAX_NAMES]:
        parts.append(family.name.removeprefix(f"{family.lineage} ") if family.lineage == lineage else family.name)
        lineage = family.lineage
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"

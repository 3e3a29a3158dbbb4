"""Which file of a checkpoint speaks of another family's tokens than the tokenizer beside it.

A statement is a misfit if the vocabulary contradicts it: a text it does not have, an id that is an ordinary word, a
token moved to another id. A file is foreign if one published family explains its misfits. Misfits that no family
explains, or of which one generic text is all there is, are left to the rules that report them one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from degarble.tokenizer.chat_template import ChatTemplate
from degarble.tokenizer.families import ROLES, Family, all_texts, families, generic_texts
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TokenClaim

NO_TOKEN = (-1, 0xFFFFFFFF)
"""What configs and GGUF metadata write for "none"."""
ENOUGH = 2
"""Weight of evidence that names a family: one text or id of its own, or two that it shares with others."""
SMALL_ID = 1000
"""Below it every family has its specials or its bytes, so one id alone says nothing."""
MIN_EXPLAINED = 0.5
"""Of a file's misfits; a fine-tune of the other family may have brought some of its own."""

MAX_CLAIMS = 4000
"""Of one file; the largest published one lists 6415 tokens, few of which any family is known by."""
NOTHING = (0, 0, 0)


class Misfit(StrEnum):
    """How the vocabulary contradicts a statement."""

    NO_TEXT = "has no id"
    PLAIN_TEXT = "is ordinary text"
    MOVED = "has another id"
    NO_ID = "has no text"
    PLAIN_ID = "is an ordinary piece"
    RESERVED_ID = "is a placeholder"
    OTHER_ROLE = "has another role"


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """One misfit and where it stands."""

    file: str
    key: str | None
    role: str | None
    text: str | None
    token_id: int | None
    kind: Misfit


class ForeignFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file, and the families that explain what is wrong in it."""

    file: str
    families: tuple[Family, ...]
    contradictions: tuple[Contradiction, ...]


def misfit_of(claim: TokenClaim, known: KnownTokens, home: Sequence[Family]) -> Misfit | None:
    """How the vocabulary contradicts one statement; None if it does not."""
    if claim.text is not None:
        return _misfit_of_text(claim, claim.text, known, home)
    if claim.token_id is None or claim.token_id in NO_TOKEN or claim.role not in ROLES:
        return None
    return _misfit_of_id(claim.token_id, ROLES[claim.role], known, home)


def _misfit_of_text(claim: TokenClaim, text: str, known: KnownTokens, home: Sequence[Family]) -> Misfit | None:
    at = known.id_of(text)
    if at is None:
        return Misfit.NO_TEXT
    if claim.token_id is not None and claim.token_id != at:
        is_published = any(family.ids.get(text) == claim.token_id for family in home)
        return (
            None if is_published else Misfit.MOVED
        )  # else the vocabulary is wrong, and of its own family all the same
    is_home = any(text in family.texts for family in home)
    return None if is_home or claim.role not in ROLES or known.is_special(at) else Misfit.PLAIN_TEXT


def _misfit_of_id(token_id: int, role: str, known: KnownTokens, home: Sequence[Family]) -> Misfit | None:
    text = known.text_of(token_id)
    if text is None:
        return Misfit.NO_ID
    if any(family.is_reserved(text) for family in home):
        return Misfit.RESERVED_ID
    if any(token_id in family.role_ids[role] for family in home):
        return None
    if not known.is_control(token_id):
        return Misfit.PLAIN_ID
    others = {"bos", "eos", "pad"} - {role} if role != "pad" else set()
    has_other = any(token_id in family.role_ids[other] for family in home for other in others)
    return Misfit.OTHER_ROLE if has_other else None


def foreign_files(
    known: KnownTokens, home: Sequence[Family], claims: Iterable[TokenClaim], templates: Iterable[ChatTemplate]
) -> list[ForeignFile]:
    """Every foreign file, in the order of the claims; templates last."""
    by_file: dict[str, list[TokenClaim]] = {}
    for claim in claims:
        by_file.setdefault(claim.file, []).append(claim)
    strangers = [family for family in families() if family not in home]
    judged = (_judge(file, stated, known, home, strangers) for file, stated in by_file.items())
    found = {file.file: file for file in judged if file is not None}
    for other in _templates(known, home, strangers, templates):
        found[other.file] = _joined(found[other.file], other) if other.file in found else other
    return list(found.values())


def _joined(one: ForeignFile, other: ForeignFile) -> ForeignFile:
    """Claims and template of one file; a family that explains both is the likelier one."""
    both = tuple(family for family in one.families if family in other.families)
    return ForeignFile(
        file=one.file,
        families=both or one.families,
        contradictions=(*one.contradictions, *(other.contradictions if both else ())),
    )


def _judge(
    file: str, claims: Sequence[TokenClaim], known: KnownTokens, home: Sequence[Family], strangers: Sequence[Family]
) -> ForeignFile | None:
    claims = [claim for claim in claims if claim.role is not None or claim.text in all_texts()][:MAX_CLAIMS]
    kinds = {claim: kind for claim in claims if (kind := misfit_of(claim, known, home)) is not None}
    scores = {family.name: _score(family, kinds, claims) for family in strangers} if kinds else {}
    best = max(scores.values(), default=NOTHING)
    if best == NOTHING or best[0] < MIN_EXPLAINED * len(kinds):
        return None
    likely = tuple(family for family in strangers if scores[family.name] == best)
    return ForeignFile(
        file=file,
        families=likely,
        contradictions=tuple(
            Contradiction(
                file=file, key=claim.key, role=claim.role, text=claim.text, token_id=claim.token_id, kind=kind
            )
            for claim, kind in kinds.items()
            if _explains_misfit(likely[0], claim, kind)
        ),
    )


def _score(family: Family, misfits: Mapping[TokenClaim, Misfit], claims: Sequence[TokenClaim]) -> tuple[int, int, int]:
    """Misfits explained, claims that fit, roles that fit; zeros where the evidence does not name a family."""
    explained = [claim for claim, kind in misfits.items() if _explains_misfit(family, claim, kind)]
    weight = sum({claim.text or claim.token_id: _weight(claim) for claim in explained}.values())
    role_ids = [claim for claim in claims if claim.text is None and claim.role in ROLES]
    if explained and role_ids and all(_explains(family, claim) for claim in role_ids):
        weight = max(weight, len({(claim.role, claim.token_id) for claim in role_ids}))
    if weight < ENOUGH:
        return NOTHING
    fitting = [claim for claim in claims if _explains(family, claim)]
    in_role = sum(claim.role in ROLES and claim.text in family.roles[ROLES[claim.role]] for claim in fitting)
    return len(explained), len(fitting), in_role


def _explains(family: Family, claim: TokenClaim) -> bool:
    """Whether the statement would be true of a tokenizer of this family."""
    if claim.text is not None:
        at = claim.token_id
        return claim.text in family.texts and (at is None or family.ids.get(claim.text, at) == at)
    return claim.role in ROLES and claim.token_id in family.role_ids[ROLES[claim.role]]


def _explains_misfit(family: Family, claim: TokenClaim, kind: Misfit) -> bool:
    """A moved token speaks for a family only where the family is known to have it there."""
    is_vague = kind is Misfit.MOVED and family.ids.get(claim.text or "") is None
    return not is_vague and _explains(family, claim)


def _weight(claim: TokenClaim) -> int:
    if claim.text is not None:
        return 1 if claim.text in generic_texts() else 2
    return 2 if (claim.token_id or 0) >= SMALL_ID else 1


def markers_in(text: str, of: Iterable[Family]) -> frozenset[str]:
    """Tokens of the families that a template writes out."""
    return frozenset(token for family in of for token in family.texts if token in text)


def _templates(
    known: KnownTokens, home: Sequence[Family], strangers: Sequence[Family], templates: Iterable[ChatTemplate]
) -> Iterator[ForeignFile]:
    """Two markers of another family's own, none of them known here, and no marker of the tokenizer's family."""
    for template in templates:
        written = {family.name: markers_in(template.text, [family]) for family in strangers}
        absent = {
            name: {text for text in texts - generic_texts() if text not in known.added_texts}
            for name, texts in written.items()
        }
        best = max((len(texts) for texts in absent.values()), default=0)
        if best < ENOUGH or markers_in(template.text, home) - generic_texts():
            continue
        likely = tuple(family for family in strangers if len(absent[family.name]) == best)
        yield ForeignFile(
            file=template.file,
            families=likely,
            contradictions=tuple(
                Contradiction(
                    file=template.file, key=template.key, role=None, text=text, token_id=None, kind=Misfit.NO_TEXT
                )
                for text in sorted(absent[likely[0].name])
            ),
        )


def votes(
    found: ForeignFile, home: Sequence[Family], claims: Iterable[TokenClaim], rows: Iterable[tuple[str, int]]
) -> Mapping[str, bool]:
    """File -> whether it speaks for the foreign family (True) or for the tokenizer's own (False); silent ones left out."""
    spoken: dict[str, bool] = {}
    own = {text for family in home for text in family.texts} - generic_texts()
    theirs = {text for family in found.families for text in family.texts}
    for claim in claims:
        if claim.text in own - theirs:
            spoken.setdefault(claim.file, False)
    for file, count in rows:
        is_home = any(count in family.rows for family in home)
        is_foreign = any(count in family.rows for family in found.families)
        if is_home is not is_foreign:
            spoken.setdefault(file, is_foreign)
    return spoken

"""What faults around special tokens have in common: finding them, and writing what a file says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from degarble.faults.interface import NotApplicable, Patient
from degarble.tokenizer.decoder_pipeline import BYTE_TOKEN
from degarble.tokenizer.families import Family
from degarble.tokenizer.known_tokens import KnownTokens
from degarble.tokenizer.token_claims import TEXT_FILES, TokenClaim

USED_ROLES = ("bos_token", "eos_token", "pad_token")
STRANGE = "<|no_such_token_{}|>"


def known_tokens_of(patient: Patient) -> KnownTokens:
    """The healthy tokens. Raises NotApplicable where there is no tokenizer."""
    found: KnownTokens | None = patient.evidence.find("known_tokens")
    if found is None:
        raise NotApplicable("no tokenizer")
    return found


def claims_of(patient: Patient, wanted: Callable[[TokenClaim], bool]) -> list[TokenClaim]:
    """Statements of the healthy files. Raises NotApplicable if none is wanted."""
    found = [claim for claim in patient.evidence.find("token_claims") or () if wanted(claim)]
    if not found:
        raise NotApplicable("no file says anything of the kind")
    return found


def home_of(patient: Patient) -> tuple[Family, ...]:
    """The published families of the vocabulary. Raises NotApplicable if nobody knows it."""
    found: tuple[Family, ...] = patient.evidence.find("token_families") or ()
    if not found:
        raise NotApplicable("a vocabulary of no published family")
    return found


def tokenizer_document(patient: Patient) -> dict[str, Any]:
    """tokenizer.json, to be changed in place. Raises NotApplicable where the tokenizer is stored otherwise."""
    known = known_tokens_of(patient)
    if not known.tokenizer.file.endswith(".json"):
        raise NotApplicable("no tokenizer.json")
    document: dict[str, Any] = patient.workspace.json(known.tokenizer.file)
    return document


def write(patient: Patient, file: str, key: str, value: object) -> None:
    """Set a value of a JSON file by its dotted key, or of GGUF metadata."""
    if file.endswith(".gguf"):
        shard: Any = patient.workspace.shard(file)
        shard.set_metadata(key, value, shard.value_types.get(key, (4, None)))
        return
    holder = patient.workspace.json(file)
    *outer, last = key.split(".")
    for name in outer:
        holder = holder[int(name)] if isinstance(holder, list) else holder[name]
    holder[int(last) if isinstance(holder, list) else last] = value


def idle_added(patient: Patient, known: KnownTokens) -> list[int]:
    """Ids of added tokens that have no role, stand in no template, and that no other file gives an id or a role."""
    claimed = {claim.text for claim in patient.evidence.find("token_claims") or () if claim.role is not None}
    claimed |= {
        known.text_of(c.token_id) for c in patient.evidence.find("token_claims") or () if c.token_id is not None
    }
    templates = [template.text for template in patient.evidence.find("chat_templates") or ()]
    free = (token for token in known.tokenizer.added_tokens.values() if token.content not in claimed)
    return [token.token_id for token in free if not any(token.content in text for text in templates)]


def plain_ids(known: KnownTokens, few: int = 4000) -> list[int]:
    """Ids of ordinary pieces of more than one byte."""
    pieces = known.tokenizer.pieces
    start = min(len(pieces) // 3, len(pieces) - few) if len(pieces) > few else 0
    middle = ((at, pieces[at]) for at in range(start, min(start + few, len(pieces))))
    return [
        at
        for at, piece in middle
        if piece is not None and len(piece) > 1 and piece not in known.added_texts and not BYTE_TOKEN.match(piece)
    ]


def text_file(patient: Patient) -> str:
    """A file that may name tokens by text. Raises NotApplicable for GGUF alone."""
    there = patient.workspace.files()
    return patient.pick(file for file in TEXT_FILES if file in there)


def role_texts(claims: Iterable[TokenClaim]) -> dict[str, str]:
    """Role -> text, as the first file says."""
    found: dict[str, str] = {}
    for claim in claims:
        if claim.role is not None and claim.text is not None:
            found.setdefault(claim.role, claim.text)
    return found

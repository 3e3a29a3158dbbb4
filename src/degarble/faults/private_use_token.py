"""Plants TOK406."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.vocabulary_edit import rename_piece, unused_added, vocabulary_of
from degarble.finding import Location
from degarble.tokenizer.token_claims import TEXT_FILES, TokenClaim

PRIVATE_USE = "\ue005"
CONTROL = "\x1a"
ZERO_WIDTH = "\u200b"
FOLDED = str.maketrans("｜▁|_", "|_｜▁")
"""What NFKC and typing make of a marker, and back."""


@fault("TOK406")
def private_use_token(patient: Patient) -> Location:
    """Write a private-use character into a special token that nothing uses."""
    return _insert(patient, PRIVATE_USE)


@fault("TOK406")
def control_character_token(patient: Patient) -> Location:
    """Write a control character into it."""
    return _insert(patient, CONTROL)


@fault("TOK406")
def invisible_character_token(patient: Patient) -> Location:
    """Write a zero-width space into it."""
    return _insert(patient, ZERO_WIDTH)


@fault("TOK406")
def token_decoded_twice(patient: Patient) -> Location:
    """Read the UTF-8 of a marker with full-width bars as Windows-1252."""
    token = unused_added(patient)
    if token.content.isascii() and "|" not in token.content:
        raise NotApplicable("no bars in the marker")
    try:
        new = token.content.replace("|", "｜").replace("▁", "_").encode().decode("cp1252")
    except UnicodeDecodeError:
        raise NotApplicable("bytes that Windows-1252 has no character for") from None
    return _renamed(patient, token.content, token.token_id, new)


@fault("TOK406")
def look_alike_text(patient: Patient) -> Location:
    """Exchange full-width and ASCII bars, U+2581 and underscores, in what one file writes for a role."""
    claim = patient.pick(_claims_to_fold(patient))
    config = patient.workspace.json(claim.file)
    stored = config[claim.key]
    text = str(claim.text).translate(FOLDED)
    config[claim.key] = text if isinstance(stored, str) else {**stored, "content": text}
    return Location(file=claim.file, key=claim.key)


@fault("TOK406")
def tokens_look_alike(patient: Patient) -> Location:
    """Give a marker that nothing uses the name of another one, with other bars."""
    tokenizer = vocabulary_of(patient).tokenizer
    token = unused_added(patient)
    names = (other.content.translate(FOLDED) for other in tokenizer.added_tokens.values() if other != token)
    new = patient.pick(
        name for name in names if name not in tokenizer.ids_by_piece and name.strip("<>") and set(name) & set("|｜▁")
    )
    return _renamed(patient, token.content, token.token_id, new)


def _claims_to_fold(patient: Patient) -> Iterator[TokenClaim]:
    claims: Sequence[TokenClaim] = patient.evidence.find("token_claims") or ()
    known = vocabulary_of(patient).tokenizer.ids_by_piece
    for claim in claims:
        if claim.file in TEXT_FILES and claim.role and claim.key == claim.role and claim.text in known:
            folded = str(claim.text).translate(FOLDED)
            if folded != claim.text and folded not in known:
                yield claim


def _insert(patient: Patient, char: str) -> Location:
    token = unused_added(patient)
    middle = len(token.content) // 2
    return _renamed(patient, token.content, token.token_id, token.content[:middle] + char + token.content[middle:])


def _renamed(patient: Patient, old: str, token_id: int, new: str) -> Location:
    place = rename_piece(patient, old, new)
    return Location(file=place.file, key=place.key, token=new, token_id=token_id)

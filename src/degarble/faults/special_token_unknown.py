"""Plants TOK401."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.token_edit import STRANGE, USED_ROLES, claims_of, known_tokens_of, text_file, write
from degarble.finding import Location


def _strange(patient: Patient) -> str:
    return STRANGE.format(patient.rng.randrange(100))


@fault("TOK401")
def special_token_unknown(patient: Patient) -> Location:
    """Give a role to a text that the vocabulary does not have."""
    known_tokens_of(patient)
    claims = claims_of(patient, lambda claim: claim.role in USED_ROLES and claim.text is not None)
    claim = patient.pick(claims)
    write(patient, claim.file, claim.key, _strange(patient))
    return Location(file=claim.file, key=claim.key)


@fault("TOK401")
def additional_token_unknown(patient: Patient) -> Location:
    """List one more special token, which the vocabulary does not have."""
    if known_tokens_of(patient).is_sentencepiece:
        raise NotApplicable("loaders extend a sentencepiece model by this list")
    file = text_file(patient)
    values = patient.workspace.json(file)
    listed = values.setdefault("additional_special_tokens", [])
    listed.append(_strange(patient))
    return Location(file=file, key=f"additional_special_tokens.{len(listed) - 1}")


@fault("TOK401")
def added_token_unknown(patient: Patient) -> Location:
    """List a token in added_tokens.json that tokenizer.json does not have, as a half-copied fine-tune does."""
    known = known_tokens_of(patient)
    rows = patient.evidence.find("embedding_rows")
    if not known.tokenizer.file.endswith(".json"):
        raise NotApplicable("no tokenizer.json")
    if rows is None or known.num_ids >= rows:
        raise NotApplicable("no row is left for another token")
    text = _strange(patient)
    patient.workspace.json("added_tokens.json")[text] = known.num_ids
    return Location(file="added_tokens.json", key=text)

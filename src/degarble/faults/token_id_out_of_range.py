"""Plants TOK403."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.token_edit import claims_of, known_tokens_of, tokenizer_document, write
from degarble.finding import Location

MAX_ADDED = 2000


def _rows(patient: Patient) -> int:
    rows: int | None = patient.evidence.find("embedding_rows")
    if rows is None:
        raise NotApplicable("no embedding")
    return rows


@fault("TOK403")
def token_id_out_of_range(patient: Patient) -> Location:
    """Give BOS, padding or another role an id that has no row."""
    known_tokens_of(patient)
    rows = _rows(patient)
    roles = claims_of(patient, lambda claim: claim.text is None and claim.role not in (None, "eos_token", "eot_token"))
    claim = patient.pick(roles)
    write(patient, claim.file, claim.key, rows + patient.rng.randrange(64))
    return Location(file=claim.file, key=claim.key)


@fault("TOK403")
def added_token_without_row(patient: Patient) -> Location:
    """Add tokens to tokenizer.json, as a fine-tune does, until one is past the embedding that was not resized."""
    document = tokenizer_document(patient)
    known = known_tokens_of(patient)
    rows = _rows(patient)
    if not known.num_ids <= rows < known.num_ids + MAX_ADDED:
        raise NotApplicable("the embedding is far larger than the vocabulary")
    for at in range(known.num_ids, rows + 1):
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        document["added_tokens"].append({"id": at, "content": f"<|added_{at}|>", **flags})
    return Location(file=known.tokenizer.file, token_id=rows)

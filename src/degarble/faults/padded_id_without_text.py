"""Plants TOK421."""

from __future__ import annotations

from degarble.evidence.store import Settings
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.token_edit import known_tokens_of
from degarble.faults.vocab_size_contradicts import resize_embedding
from degarble.finding import Location

ROWS_ADDED = 64


@fault("TOK421", settings=Settings(engine="vllm"))
def padded_id_without_text(patient: Patient) -> Location:
    """Pad the embedding by rows that no token has, for an engine that ends at such an id."""
    tokenizer = known_tokens_of(patient).tokenizer
    rows: int | None = patient.evidence.find("embedding_rows")
    if rows is None or rows != tokenizer.num_ids or None in tokenizer.pieces:
        raise NotApplicable("there are such ids already")
    resize_embedding(patient, rows + ROWS_ADDED)
    return Location(file=tokenizer.file, token_id=rows)

"""Plants WGT226."""

from __future__ import annotations

from dataclasses import replace

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.ordinary_tokens import OrdinaryTokens
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("WGT226")
def embedding_rows_dead(patient: Patient) -> Location:
    """Set the row of one ordinary token to zero."""
    return _zero(patient, 1)


@fault("WGT226")
def embedding_rows_dead_in_a_block(patient: Patient) -> Location:
    """Set the rows of 32 ordinary tokens to zero, as a lost piece of the vocabulary would."""
    return _zero(patient, 32)


@fault("WGT226")
def embedding_rows_repeated(patient: Patient) -> Location:
    """Give a tenth of the vocabulary the row of one token."""
    module, ids = _embedding(patient)
    if len(ids) < 100:
        raise NotApplicable("a tiny vocabulary")
    chosen = sorted(patient.rng.sample(ids, max(20, len(ids) // 10)))
    rows = _rows(module)
    rows[chosen] = rows[chosen[0]]
    overwrite(patient, module.any_part, rows)
    return module.place()


def _zero(patient: Patient, count: int) -> Location:
    module, ids = _embedding(patient)
    if len(ids) < 2 * count:
        raise NotApplicable("a tiny vocabulary")
    at = patient.rng.randrange(len(ids) - count)
    rows = _rows(module)
    rows[ids[at : at + count]] = 0
    overwrite(patient, module.any_part, rows)
    return replace(module.place(), row=ids[at], token_id=ids[at])


def _rows(module: StoredModule) -> Array:
    return module.reader.raw(module.any_part).copy().reshape(module.any_part.shape[0], -1)


def _embedding(patient: Patient) -> tuple[StoredModule, list[int]]:
    """The embedding and the ids of ordinary tokens."""
    module = patient.pick(
        patient.modules(
            lambda m: m.kind == "embedding" and m.form.format in ("plain", "gguf") and len(m.any_part.shape) == 2
        )
    )
    tokens: OrdinaryTokens | None = patient.evidence.find("ordinary_tokens")
    config = patient.evidence.find("model_config")
    special = {value for key, value in (config.text.items() if config is not None else ()) if key.endswith("_token_id")}
    ids = [
        row
        for row in range(module.any_part.shape[0])
        if tokens is not None and tokens.is_ordinary(row) and row not in special
    ]
    if not ids:
        raise NotApplicable("no tokenizer that says which ids are ordinary")
    return module, ids

"""Plants TOK404."""

from __future__ import annotations

from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.token_edit import idle_added, known_tokens_of, plain_ids, tokenizer_document
from degarble.finding import Location


@fault("TOK404")
def token_id_duplicated(patient: Patient) -> Location:
    """Give an added token the id of another."""
    document = tokenizer_document(patient)
    known = known_tokens_of(patient)
    vocab = document["model"]["vocab"]
    able = [at for at in idle_added(patient, known) if known.text_of(at) not in vocab]
    if len(able) < 2:
        raise NotApplicable("no two added tokens that nothing depends on")
    one, other = sorted(patient.rng.sample(able, 2))
    for entry in document["added_tokens"]:
        if entry["id"] == other:
            entry["id"] = one
    return Location(file=known.tokenizer.file)


@fault("TOK404")
def token_added_over_piece(patient: Patient) -> Location:
    """Add a token under the id of an ordinary piece."""
    document = tokenizer_document(patient)
    known = known_tokens_of(patient)
    at = patient.pick(plain_ids(known, 200))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    document["added_tokens"].append({"id": at, "content": "<|added_over_a_piece|>", **flags})
    return Location(file=known.tokenizer.file, key="added_tokens")


@fault("TOK404")
def token_added_twice(patient: Patient) -> Location:
    """Add a token that is there once more, under the next free id."""
    document = tokenizer_document(patient)
    known = known_tokens_of(patient)
    rows = patient.evidence.find("embedding_rows")
    if rows is None or known.num_ids >= rows:
        raise NotApplicable("no row is left")
    entry = patient.pick(entry for entry in document["added_tokens"] if entry["id"] in idle_added(patient, known))
    document["added_tokens"].append({**entry, "id": known.num_ids})
    return Location(file=known.tokenizer.file, token=entry["content"])


@fault("TOK404")
def listed_id_twice(patient: Patient) -> Location:
    """Give two tokens of added_tokens.json one id."""
    values = patient.workspace.json("added_tokens.json") if "added_tokens.json" in patient.workspace.files() else {}
    if len(values) < 2:
        raise NotApplicable("no added_tokens.json with two tokens")
    one, other = patient.rng.sample(sorted(values), 2)
    values[other] = values[one]
    return Location(file="added_tokens.json")


@fault("TOK404")
def gguf_token_twice(patient: Patient) -> Location:
    """Write one string of a GGUF vocabulary under two ids."""
    known = known_tokens_of(patient)
    if not known.is_gguf:
        raise NotApplicable("not a GGUF file")
    shard: Any = patient.workspace.shard(known.tokenizer.file)
    tokens = list(shard.metadata["tokenizer.ggml.tokens"])
    able = idle_added(patient, known)
    if len(able) < 2 and "tokenizer.ggml.merges" in shard.metadata:
        raise NotApplicable("every token is part of a merge")
    one, other = patient.rng.sample(able if len(able) > 1 else plain_ids(known, 200), 2)
    tokens[other] = tokens[one]
    shard.set_metadata("tokenizer.ggml.tokens", tokens)
    return Location(file=known.tokenizer.file, token=tokens[one])

"""Plants TPL507."""

from __future__ import annotations

from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.templates.stop_tokens import read_stop_ids
from degarble.tokenizer.families import families
from degarble.tokenizer.known_tokens import KnownTokens


def _known(patient: Patient) -> KnownTokens:
    known: KnownTokens | None = patient.evidence.find("known_tokens")
    if known is None:
        raise NotApplicable("no tokenizer")
    return known


@fault("TPL507")
def eos_id_invalid(patient: Patient) -> Location:
    """Stop at an ordinary word."""
    known = _known(patient)
    stops = read_stop_ids(patient.evidence.get("token_claims"), known.id_of)
    files = [file for file in stops.keys if file.endswith((".gguf", "onfig.json")) and file != "tokenizer_config.json"]
    file = patient.pick(sorted(files))
    foreign = {at for family in families() for ids in family.role_ids.values() for at in ids}
    rows: int = patient.evidence.find("embedding_rows") or known.num_ids
    word = patient.pick(
        at
        for at in range(min(rows, known.num_ids))
        if at not in foreign and (known.text_of(at) or "").isalpha() and not known.is_control(at)
    )
    key = stops.keys[file]
    if file.endswith(".gguf"):
        shard: Any = patient.workspace.shard(file)
        shard.set_metadata(key, word)
    elif "." in key:
        raise NotApplicable("a nested config")
    else:
        patient.workspace.json(file)[key] = word
    return Location(file=file, key=key)


@fault("TPL507")
def eos_id_quoted(patient: Patient) -> Location:
    """Write the stop id as a text."""
    _known(patient)
    config = patient.evidence.find("generation_config")
    stored = config.get("eos_token_id") if config is not None else None
    if type(stored) is not int:
        raise NotApplicable("no single stop id in generation_config.json")
    patient.workspace.json("generation_config.json")["eos_token_id"] = str(stored)
    return Location(file="generation_config.json", key="eos_token_id")

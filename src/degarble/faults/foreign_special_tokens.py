"""Plants TOK413."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.token_edit import home_of, known_tokens_of, write
from degarble.finding import Location
from degarble.tokenizer.families import Family, families, generic_texts


def _roles(family: Family) -> dict[str, str]:
    """One text a role, the first by name."""
    return {f"{role}_token": min(texts) for role, texts in family.roles.items() if texts}


def _stranger(patient: Patient) -> Family:
    """A family of another maker, none of whose own texts this vocabulary knows."""
    home = home_of(patient)
    known = known_tokens_of(patient)

    def is_strange(family: Family) -> bool:
        own = set(_roles(family).values()) - generic_texts()
        return bool(own) and all(known.id_of(text) is None for text in own)

    makers = {family.lineage for family in home}
    return patient.pick(family for family in families() if family.lineage not in makers and is_strange(family))


def _stranger_by_id(patient: Patient) -> Family:
    """A family whose EOS is an ordinary piece here."""
    home = home_of(patient)
    known = known_tokens_of(patient)
    makers = {family.lineage for family in home}

    def is_ordinary(at: int) -> bool:
        return known.text_of(at) is not None and not known.is_control(at) and at >= 1000

    return patient.pick(
        family
        for family in families()
        if family.lineage not in makers and family.role_ids["eos"] and all(map(is_ordinary, family.role_ids["eos"]))
    )


@fault("TOK413")
def foreign_special_tokens(patient: Patient) -> Location:
    """Lay the special_tokens_map.json of another family beside the tokenizer."""
    if known_tokens_of(patient).is_gguf:
        raise NotApplicable("a GGUF file has no such file beside it")
    family = _stranger(patient)
    name = "special_tokens_map.json"
    values = patient.workspace.json(name)
    values.clear()
    values.update(_roles(family))
    return Location(file=name)


@fault("TOK413")
def foreign_tokenizer_config(patient: Patient) -> Location:
    """Take the tokens of tokenizer_config.json from another family, listing included."""
    name = "tokenizer_config.json"
    if known_tokens_of(patient).is_gguf or name not in patient.workspace.files():
        raise NotApplicable("no tokenizer_config.json")
    family = _stranger(patient)
    values: dict[str, Any] = patient.workspace.json(name)
    values.pop("additional_special_tokens", None)
    values.update({"bos_token": None, "eos_token": None, "pad_token": None, **_roles(family)})
    values["added_tokens_decoder"] = _decoder(family.ids, family)
    return Location(file=name)


def _decoder(ids: Mapping[str, int], family: Family) -> dict[str, Any]:
    return {str(at): {"content": text, "special": family.special.get(text, True)} for text, at in ids.items()}


@fault("TOK413")
def foreign_stop_id(patient: Patient) -> Location:
    """Write the stop ids of another family into generation_config.json or GGUF metadata."""
    known = known_tokens_of(patient)
    family = _stranger_by_id(patient)
    ids = sorted(family.role_ids["eos"])
    if known.is_gguf:
        key = "tokenizer.ggml.eos_token_id"
        write(patient, known.tokenizer.file, key, ids[0])
        return Location(file=known.tokenizer.file, key=key)
    name = "generation_config.json"
    if name not in patient.workspace.files():
        raise NotApplicable(f"no {name}")
    write(patient, name, "eos_token_id", ids[0] if len(ids) == 1 else ids)
    return Location(file=name, key="eos_token_id")

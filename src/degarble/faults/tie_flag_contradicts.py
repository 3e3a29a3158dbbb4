"""Plants CFG105."""

from __future__ import annotations

import numpy as np

from degarble.evidence.model import ModelConfig
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule

KEY = "tie_word_embeddings"


@fault("CFG105")
def tie_flag_contradicts(patient: Patient) -> Location:
    """Declare an untied model tied; its head has values of its own."""
    _config(patient)
    head = patient.pick(patient.modules(lambda m: m.canonical == "lm_head" and m.form.format == "plain"))
    config = patient.workspace.json("config.json")
    if config.get(KEY) is True or np.array_equal(_raw(head), _raw(_embedding(patient))):
        raise NotApplicable("tied, or a copy")
    config[KEY] = True
    return Location(file="config.json", key=KEY)


@fault("CFG105")
def tie_flag_beside_new_head(patient: Patient) -> Location:
    """Give a tied model a head of its own, with rows in another order; the flag stays."""
    config = _config(patient)
    embedding = _embedding(patient)
    if not patient.evidence.get("architecture").tied or config.text.get(KEY) is not True:
        raise NotApplicable("not tied by its own config")
    if any(module.canonical == "lm_head" for module in patient.evidence.get("modules").values()):
        raise NotApplicable("a head is stored")
    values = np.ascontiguousarray(embedding.array(PAYLOAD)[::-1])
    name = f"{patient.evidence.get('prefix').head}weight"
    patient.workspace.add(embedding.any_part.file, name, values)
    return Location(file="config.json", key=KEY, tensor=name)


def _config(patient: Patient) -> ModelConfig:
    config: ModelConfig | None = patient.evidence.find("model_config")
    if config is None or config.gguf is not None or config.text is not config.values:
        raise NotApplicable("no plain config.json")
    if patient.evidence.find("architecture") is None:
        raise NotApplicable("unknown architecture")
    return config


def _embedding(patient: Patient) -> StoredModule:
    return patient.pick(patient.modules(lambda m: m.canonical == "model.embed_tokens" and m.form.format == "plain"))


def _raw(module: StoredModule) -> np.ndarray:
    return module.reader.raw(module.any_part)

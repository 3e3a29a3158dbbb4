"""Plants CFG101."""

from __future__ import annotations

import msgspec

from degarble.evidence.model import ModelConfig
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location

FILE = "config.json"


@fault("CFG101")
def config_unreadable(patient: Patient) -> Location:
    """Cut config.json in its middle."""
    size = patient.evidence.get("files")[_config(patient).file]
    patient.workspace.truncate(FILE, size // 2)
    return Location(file=FILE)


@fault("CFG101")
def config_with_byte_order_mark(patient: Patient) -> Location:
    """Save config.json as an editor under Windows does."""
    _config(patient)
    patient.workspace.write(FILE, b"\xef\xbb\xbf" + patient.evidence.get("source").read(FILE))
    return Location(file=FILE)


@fault("CFG101")
def config_in_utf_16(patient: Patient) -> Location:
    """Save config.json in another encoding."""
    _config(patient)
    patient.workspace.write(FILE, patient.evidence.get("source").read(FILE).decode().encode("utf-16"))
    return Location(file=FILE)


@fault("CFG101")
def config_is_no_object(patient: Patient) -> Location:
    """Wrap the config in a list."""
    patient.workspace.write(FILE, msgspec.json.encode([dict(_config(patient).values)]))
    return Location(file=FILE)


@fault("CFG101")
def config_key_missing(patient: Patient) -> Location:
    """Drop a size that every family needs, or the name of the family."""
    key = patient.pick(("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "model_type"))
    return _change(patient, key, None)


@fault("CFG101")
def config_key_ill_typed(patient: Patient) -> Location:
    """Write a size as text."""
    config = _config(patient)
    key = patient.pick(("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads"))
    return _change(patient, key, str(config.text.get(key)))


def _config(patient: Patient) -> ModelConfig:
    config: ModelConfig | None = patient.evidence.find("model_config")
    if config is None or config.gguf is not None or patient.evidence.find("architecture") is None:
        raise NotApplicable("no config.json of a known family")
    return config


def _change(patient: Patient, key: str, value: str | None) -> Location:
    """Drop the key (None) or give it another value."""
    place = _config(patient).place(key)
    written = patient.workspace.json(FILE)
    if place.key != key or key not in written:
        raise NotApplicable(f"{key} stands elsewhere")
    if value is None:
        del written[key]
    else:
        written[key] = value
    return place

"""Plants CFG102."""

from __future__ import annotations

from degarble.evidence.model import ModelConfig
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location

SIZES = ("hidden_size", "intermediate_size", "moe_intermediate_size", "num_key_value_heads", "head_dim", "vocab_size")


@fault("CFG102")
def shape_contradicts_config(patient: Patient) -> Location:
    """Write another size into the config, or into GGUF metadata."""
    config = _config(patient)
    return change_size(patient, patient.pick(key for key in SIZES if _is_used(patient, config, key)))


@fault("CFG102")
def heads_contradict(patient: Patient) -> Location:
    """Write another number of key-value heads."""
    config = _config(patient)
    return change_size(patient, patient.pick(k for k in ("num_key_value_heads",) if _is_used(patient, config, k)))


@fault("CFG102")
def vocabulary_contradicts(patient: Patient) -> Location:
    """Write a vocabulary that is larger than the embedding has rows."""
    config = _config(patient)
    return change_size(patient, patient.pick(key for key in ("vocab_size",) if _is_used(patient, config, key)))


@fault("CFG102")
def norm_cut_short(patient: Patient) -> Location:
    """Halve one norm, as a wrong slice does; the config stays as it is."""
    _config(patient)
    norms = patient.modules(
        lambda m: (
            m.kind == "norm" and m.form.format == "plain" and m.layer is not None and set(m.form.roles) == {"payload"}
        )
    )
    norm = patient.pick(norm for norm in norms if len(norm.any_part.shape) == 1 and norm.any_part.shape[0] % 2 == 0)
    info = norm.any_part
    half = norm.reader.raw(info)[: info.nbytes // 2].tobytes()
    patient.workspace.holder(info.name).set(info.name, info.dtype, (info.shape[0] // 2,), half)
    return norm.place()


def change_size(patient: Patient, key: str) -> Location:
    """Double one size where the config has it."""
    config = _config(patient)
    place = config.place(key)
    assert place.file is not None and place.key is not None
    if config.gguf is not None:
        old = config.gguf.metadata[place.key]
        patient.workspace.shard(place.file).set_metadata(place.key, old * 2)  # type: ignore[attr-defined]
    else:
        holder = patient.workspace.json(place.file)
        *outer, last = place.key.split(".")
        for name in outer:
            holder = holder[name]
        holder[last] *= 2
    return place


def _config(patient: Patient) -> ModelConfig:
    config: ModelConfig | None = patient.evidence.find("model_config")
    if config is None or patient.evidence.find("architecture") is None:
        raise NotApplicable("no config of a known family")
    return config


def _is_used(patient: Patient, config: ModelConfig, key: str) -> bool:
    """Whether the config has the key as a number of its own, and a stored tensor depends on it alone in some axis."""
    if not isinstance(config.text.get(key), int) or isinstance(config.text.get(key), bool):
        return False
    if config.gguf is not None:
        place = config.places.get(key, "")
        is_derived = list(config.places.values()).count(place) > 1  # head_dim, computed from the number of heads
        if is_derived or not isinstance(config.gguf.metadata.get(place), int):
            return False
    stored = patient.evidence.get("parameters").present
    return any(
        key in dim.replace("*", " ").split()
        for template in patient.evidence.get("architecture").templates
        for dim in template.dims
        if template.name.removesuffix(".weight") in stored
    )

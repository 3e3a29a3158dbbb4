"""Plants CFG107."""

from __future__ import annotations

from typing import Any

from degarble.evidence.model import ModelConfig
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location

SCALINGS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"rope_type": "yarn", "original_max_position_embeddings": 1024}, "factor"),
    ({"rope_type": "yarn", "factor": 4.0}, "original_max_position_embeddings"),
    ({"rope_type": "linear"}, "factor"),
    (
        {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024},
        "low_freq_factor",
    ),
    (
        {
            "rope_type": "longrope",
            "short_factor": [1.0],
            "long_factor": [1.0],
            "original_max_position_embeddings": 1024,
        },
        "long_factor",
    ),
)
"""Scaling settings with one key missing or too short, and that key."""


@fault("CFG107")
def rope_settings_lost(patient: Patient) -> Location:
    """Drop the base frequency from the config, or from GGUF metadata."""
    config = _config(patient)
    if config.gguf is not None:
        key = config.places.get("rope_theta", "")
        if key not in config.gguf.metadata:
            raise NotApplicable("no base frequency")
        patient.workspace.shard(config.file).drop_metadata(key)  # type: ignore[attr-defined]
        return Location(file=config.file, key=key)
    name, settings = _settings(patient)
    if "rope_theta" not in settings:
        raise NotApplicable("no base frequency")
    del settings["rope_theta"]
    return Location(file=config.file, key=f"{name}.rope_theta")


@fault("CFG107")
def rope_scaling_incomplete(patient: Patient) -> Location:
    """Declare a scaling of which one key is missing."""
    if _config(patient).gguf is not None:
        raise NotApplicable("GGUF")
    name, settings = _settings(patient)
    scaling, lost = patient.pick(SCALINGS)
    settings |= scaling
    if "short_factor" in scaling:
        sizes = patient.evidence.get("architecture").config
        settings["short_factor"] = scaling["short_factor"] * ((sizes.get("qk_rope_head_dim") or sizes["head_dim"]) // 2)
    return Location(file="config.json", key=f"{name}.{lost}")


@fault("CFG107")
def rope_spellings_contradict(patient: Patient) -> Location:
    """Leave an old base frequency beside the new object."""
    if _config(patient).gguf is not None:
        raise NotApplicable("GGUF")
    _, settings = _settings(patient)
    if "rope_theta" not in settings:
        raise NotApplicable("no base frequency")
    patient.workspace.json("config.json")["rope_theta"] = settings["rope_theta"] / 10
    return Location(file="config.json", key="rope_theta")


@fault("CFG107")
def rope_scaling_metadata_incomplete(patient: Patient) -> Location:
    """Name a scaling type in GGUF metadata without its factor."""
    config = _config(patient)
    if config.gguf is None:
        raise NotApplicable("not GGUF")
    kind = config.gguf.metadata["general.architecture"]
    shard: Any = patient.workspace.shard(config.file)
    shard.set_metadata(f"{kind}.rope.scaling.type", "linear", (8, None))
    return Location(file=config.file, key=f"{kind}.rope.scaling.factor")


def _config(patient: Patient) -> ModelConfig:
    config: ModelConfig | None = patient.evidence.find("model_config")
    if config is None or patient.evidence.find("architecture") is None or config.text is not config.values:
        raise NotApplicable("no flat config of a known family")
    return config


def _settings(patient: Patient) -> tuple[str, dict[str, Any]]:
    """The rotary object of config.json, to be changed in place."""
    config = patient.workspace.json("config.json")
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(config.get(name), dict):
            return name, config[name]
    raise NotApplicable("no rotary object")

"""Plants CFG109."""

from __future__ import annotations

from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location

CHANGES: tuple[tuple[str, Any], ...] = (
    ("rms_norm_eps", 1e-3),
    ("max_position_embeddings", 131_072),
    ("hidden_act", "gelu"),
    ("sliding_window", 64),
    ("num_experts_per_tok", 1),
    ("routed_scaling_factor", 1.0),
    ("attention_multiplier", 0.125),
)
"""Keys that fit every shape, and values that no checkpoint here has."""


@fault("CFG109", needs_reference=True)
def config_differs_from_reference(patient: Patient) -> Location:
    """Change one key that only the source model's config can prove wrong."""
    config = _config(patient)
    key, value = patient.pick((k, v) for k, v in CHANGES if config.get(k, "absent") not in (v, "absent"))
    config[key] = value
    return Location(file="config.json", key=key)


@fault("CFG109", needs_reference=True)
def rope_theta_differs_from_reference(patient: Patient) -> Location:
    """Set the base frequency to another plausible value."""
    settings = _config(patient).get("rope_parameters")
    if not isinstance(settings, dict) or not isinstance(settings.get("rope_theta"), (int, float)):
        raise NotApplicable("no base frequency")
    settings["rope_theta"] *= 50
    return Location(file="config.json", key="rope_parameters.rope_theta")


@fault("CFG109", needs_reference=True)
def key_lost_against_reference(patient: Patient) -> Location:
    """Drop a key whose default is another value."""
    config = _config(patient)
    if "rms_norm_eps" not in config:
        raise NotApplicable("no norm epsilon")
    del config["rms_norm_eps"]
    return Location(file="config.json", key="rms_norm_eps")


def _config(patient: Patient) -> dict[str, Any]:
    found = patient.evidence.find("model_config")
    if found is None or found.gguf is not None or found.text is not found.values:
        raise NotApplicable("no plain config.json")
    config: dict[str, Any] = patient.workspace.json("config.json")
    return config

"""CFG107: what is legal in rotary settings, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from degarble.finding import Severity
from tests.checks.config.checkpoints import config_of, found, shapes_of, source

YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
HALF = [1.0] * 5

LEGAL: dict[str, dict[str, Any]] = {
    "old spelling": {"rope_scaling": YARN},
    "new spelling": {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "both spellings, equal": {"rope_scaling": YARN, "rope_parameters": {**YARN, "rope_theta": 10000.0}},
    "llama3": {"rope_scaling": LLAMA3},
    "original length beside it": {
        "rope_scaling": {"type": "su", "short_factor": HALF, "long_factor": HALF},
        "original_max_position_embeddings": 4096,
    },
    "mrope twice": {"rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [1, 2, 2]}},
    "by layer type": {
        "rope_theta": None,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "null": {"rope_scaling": None},
    "first llama": {"rope_theta": None, "transformers_version": "4.31.0.dev0"},
}

WRONG: dict[str, tuple[dict[str, Any], str, Severity]] = {
    "yarn without factor": (
        {"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 1}},
        "rope_scaling.factor",
        Severity.ERROR,
    ),
    "llama3 without high": (
        {"rope_scaling": {k: v for k, v in LLAMA3.items() if k != "high_freq_factor"}},
        "rope_scaling.high_freq_factor",
        Severity.ERROR,
    ),
    "short list": (
        {
            "rope_scaling": {"type": "longrope", "short_factor": HALF, "long_factor": [1.0]},
            "original_max_position_embeddings": 8,
        },
        "rope_scaling.long_factor",
        Severity.ERROR,
    ),
    "factor is text": ({"rope_scaling": {**YARN, "factor": "4"}}, "rope_scaling.factor", Severity.ERROR),
    "unknown type": ({"rope_scaling": {"rope_type": "spiral"}}, "rope_scaling.rope_type", Severity.WARNING),
    "theta gone": ({"rope_theta": None, "transformers_version": "4.44.0"}, "rope_theta", Severity.WARNING),
    "theta twice": ({"rope_parameters": {"rope_theta": 5e5}}, "rope_theta", Severity.WARNING),
    "type is a list": ({"rope_scaling": {"rope_type": ["yarn"]}}, "rope_scaling.rope_type", Severity.ERROR),
}


@pytest.mark.parametrize("case", LEGAL)
def test_legal_spelling_is_silent(case: str) -> None:
    """Both generations of transformers, and their quirks."""
    config = config_of("llama", **LEGAL[case])
    config = {key: value for key, value in config.items() if value is not None or key == "rope_scaling"}
    assert found(source(config, shapes_of(config))) == []


@pytest.mark.parametrize("case", WRONG)
def test_incomplete_settings_are_named(case: str) -> None:
    """One finding, at the key that is missing or wrong."""
    more, key, severity = WRONG[case]
    config = config_of("llama", **more)
    config = {name: value for name, value in config.items() if value is not None}
    findings = found(source(config, shapes_of(config)))
    assert [(f.rule, f.location.key, f.severity) for f in findings] == [("CFG107", key, severity)]

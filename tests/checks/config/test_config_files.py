"""CFG101, CFG105, CFG106, CFG108, CFG109: look-alikes and edges."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.finding import Severity
from degarble.registry import Level
from degarble.target import open_target
from tests.checks.config.checkpoints import config_of, found, shapes_of, source
from tests.memory_source import MemorySource

HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 2**31, 1e308, "", "64", [], [None], {}, {"a": 1}, {"rope_type": ["x"]}, [[[]]],
)  # fmt: skip


def rules_of(checkpoint: MemorySource, **options: Any) -> list[str]:
    """Ids in the order of the report."""
    return [f.rule for f in found(checkpoint, **options)]


def test_infinity_is_a_warning() -> None:
    """Python writes it, and loaders in Python read it."""
    config = config_of("llama", time_step_limit=[0.0, 1.0])
    raw = json.dumps(config).replace("1.0]", "Infinity]").encode()
    findings = found(source(config, shapes_of(config), {"config.json": raw}))
    assert [(f.rule, f.severity) for f in findings] == [("CFG101", Severity.WARNING)]


def test_folder_without_config_is_a_warning_and_adapters_need_none() -> None:
    """Neither does Mistral's own form."""
    weights = source(config_of("llama"), {"model.layers.0.x.weight": (1,)}).read("model.safetensors")
    assert rules_of(MemorySource({"model.safetensors": weights})) == ["CFG101"]
    assert rules_of(MemorySource({"adapter_model.safetensors": weights, "adapter_config.json": b"{}"})) == []
    mistral = MemorySource({"consolidated.safetensors": weights, "params.json": b"{}"})
    assert rules_of(mistral) == []
    assert rules_of(mistral, worst=Severity.INFO) == ["CFG101"]


def test_unknown_model_type_is_information() -> None:
    """And the report is partial."""
    config = config_of("llama") | {"model_type": "no_such_family"}
    findings = found(source(config, {"model.norm.weight": (48,)}), worst=Severity.INFO)
    assert [(f.rule, f.severity) for f in findings] == [("CFG101", Severity.INFO)]


@pytest.mark.parametrize("name", ["LlamaModel", "LlamaForSequenceClassification"])
def test_headless_class_needs_no_head(name: str) -> None:
    """A classifier's own head is not unknown either."""
    config = config_of("llama", architectures=[name])
    shapes = shapes_of(config)
    del shapes["lm_head.weight"]
    assert rules_of(source(config, shapes | {"score.weight": (2, 48)})) == []


def test_tied_copy_is_legal_and_a_distinct_head_is_not(golden: Path) -> None:
    """Contents decide, at content level only."""
    base = open_target(golden / "base-bf16")
    for change, expected in ((0, []), (1, ["CFG105"])):
        workspace = Workspace(base)
        values = np.array(_embedding(golden))
        values.view(np.uint16)[-1, -1] ^= change
        workspace.add("model.safetensors", "lm_head.weight", values)
        assert rules_of(workspace.source()) == expected  # type: ignore[arg-type]
        assert rules_of(workspace.source(), level=Level.HEADER) == []  # type: ignore[arg-type]


def test_either_level_that_ties_is_named(golden: Path) -> None:
    """The outer level says true, the language model's false, and the head is its own."""
    workspace = Workspace(open_target(golden / "own-untied-bf16"))
    config = workspace.json("config.json")
    inner = dict(config)
    config.clear()
    config |= {"model_type": "llava", "text_config": inner, "tie_word_embeddings": True}
    findings = found(workspace.source())
    assert [(f.rule, f.location.key) for f in findings] == [("CFG105", "tie_word_embeddings")]


def test_mixture_of_dtypes_is_silent() -> None:
    """fp32 norms never count; without a majority there is nothing to say."""
    config = config_of("llama", torch_dtype="float16")
    assert rules_of(source(config, shapes_of(config))) == ["CFG108"]
    assert rules_of(source(config | {"torch_dtype": "auto"}, shapes_of(config))) == []


def test_reference_is_compared_by_value() -> None:
    """A config that another version of transformers wrote is the same config."""
    old = config_of("llama", rope_scaling={"type": "linear", "factor": 2}, rms_norm_eps=1e-5, _name_or_path="a")
    new = {key: value for key, value in old.items() if key not in ("rope_scaling", "rope_theta", "torch_dtype")}
    new |= {
        "dtype": "bfloat16",
        "rms_norm_eps": 9.999999747378752e-06,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000},
        "attention_bias": False,
        "transformers_version": "5.0.0",
    }
    shapes = shapes_of(old)
    assert rules_of(source(new, shapes), reference=source(old, shapes)) == []
    nested = {"model_type": "llava", "text_config": old | {"rms_norm_eps": 1e-4}}
    changed = found(source(nested, shapes), reference=source(nested | {"text_config": old}, shapes))
    assert [(f.rule, f.location.key) for f in changed] == [("CFG109", "text_config.rms_norm_eps")]


def test_no_value_type_crashes_a_check() -> None:
    """Any JSON value in any place."""
    rng = random.Random(7)
    base = config_of("deepseek_v3", rope_scaling={"type": "yarn"}, text_config=None, dtype="bfloat16")
    shapes = shapes_of(base)
    for _ in range(150):
        config = dict(base)
        for key in rng.sample(sorted(config), 2):
            config[key] = rng.choice(HOSTILE)
        if rng.random() < 0.2:
            config = {"model_type": "llava", "text_config": config}
        found(source(config, shapes), reference=source(base, shapes))


def _embedding(golden: Path) -> np.ndarray:
    from degarble.evidence import Evidence, Settings

    evidence = Evidence(open_target(golden / "base-bf16"), Settings())
    return np.asarray(evidence.get("modules")["model.embed_tokens"].array("payload"))

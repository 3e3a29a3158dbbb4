"""CFG109: quantising changed keys of the config that it should have left alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from degarble.evidence.model import TEXT_KEYS, ModelConfig
from degarble.evidence.store import Evidence
from degarble.finding import Finding, Fix, Location, Severity
from degarble.registry import Level, check

IGNORED = frozenset(
    {
        "_name_or_path", "_model_name_or_path", "_commit_hash", "_attn_implementation", "_attn_implementation_autoset",
        "transformers_version", "quantization_config", "compression_config", "quantization", "use_cache",
        "auto_map", "unsloth_version", "unsloth_fixed", "pretraining_tp", "output_attentions", "output_hidden_states",
        "return_dict", "output_router_logits",
    }
)  # fmt: skip
"""Keys that tools rewrite and that change nothing in what the model computes."""

NOTED = ("dtype", "torch_dtype")
"""Written anew by every tool that saves; CFG108 judges it against the weights."""

ROPE = ("rope_parameters", "rope_scaling")
DEFAULTS: Mapping[str, Any] = {
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "rope_type": "default",
    "sliding_window": None,
    "attention_dropout": 0.0,
}
"""What silence means, where newer versions write a default out."""

SHOWN_CHARS = 80

EXPLAINED_BY = ("CFG101", "CFG102", "CFG103", "CFG105", "CFG106", "CFG107")


@check(
    "CFG109",
    severity=Severity.WARNING,
    level=Level.REFERENCE,
    symptom_of=EXPLAINED_BY,
)
def config_differs_from_reference(model_config: ModelConfig, reference: Evidence) -> Iterator[Finding]:
    """A key that has nothing to do with quantisation is not what the reference's config says.

    ## What it looks for
    All keys of both configs, by value: 1e-6 is 1e-06, 8 is 8.0, a float that went through fp32 is itself; a nested
    `text_config` is compared with a flat config; `rope_theta` may have moved into `rope_parameters`, `type` may have
    become `rope_type`. Versions, paths, dtypes, cache switches and everything about quantisation are left out. GGUF
    metadata is compared in the keys that both forms know.

    ## Why output turns to garbage
    The weights were trained with the source's numbers. A norm epsilon, a rotary base, a number of experts for each
    token, a window, a logit cap: each fits every shape, so that no loader can notice.

    ## What you will see
    A quiet loss of quality, often only at length; with heads or experts a model that answers beside the point.

    ## How to tell it from its look-alikes
    A difference that the tensors prove wrong by themselves is CFG102, CFG103 or CFG105, which explain this. A reference
    of another size or family differs in everything: compare the model with its own source.

    ## How to confirm
    `diff` of the two config.json files with keys sorted.

    ## How to repair it
    Copy the key's value from the reference. Safe unattended for the keys named here, if the reference is the model that
    was quantised.

    ## References
    NVIDIA/TensorRT-LLM#1676, JIA-Lab-research/LongLoRA#181, vllm-project/llm-compressor#81
    """
    other = reference.find("model_config")
    if not isinstance(other, ModelConfig):
        return
    mine, theirs = normalised(model_config), normalised(other)
    keys = set(mine) | set(theirs)
    if model_config.container is not other.container:
        keys = set(mine) & set(theirs) - {"model_type", "vocab_size", "tie_word_embeddings", "head_dim"}
    for key in sorted(keys):
        default = DEFAULTS.get(key.rpartition(".")[2])
        found, expected = mine.get(key, default), theirs.get(key, default)
        if not is_equal(found, expected):
            yield _finding(model_config, key, found, expected)


def normalised(config: ModelConfig) -> dict[str, Any]:
    """One flat dictionary: the language model's keys, rotary settings in one form, other towers under their names."""
    flat: dict[str, Any] = {}
    text = config.text
    if text is not config.values:
        flat |= {key: value for key, value in config.values.items() if key not in TEXT_KEYS}
        flat |= {key: value for key, value in text.items() if key not in ("architectures",)}
    else:
        flat |= text
    flat = {key: value for key, value in flat.items() if key not in IGNORED and value is not None}
    rope: dict[str, Any] = {}
    for name in reversed(ROPE):
        settings = flat.pop(name, None)
        if isinstance(settings, dict):
            rope |= settings
    if "type" in rope:
        rope.setdefault("rope_type", rope.pop("type"))
    if "rope_theta" in flat:
        rope.setdefault("rope_theta", flat.pop("rope_theta"))
    if isinstance(flat.get("architectures"), list):
        flat["architectures"] = sorted(map(str, flat["architectures"]))
    dtype = next((flat.pop(name) for name in NOTED if name in flat), None)
    for name in NOTED:
        flat.pop(name, None)
    if isinstance(dtype, str):
        flat["dtype"] = dtype.removeprefix("torch.")
    return flat | {f"rope_parameters.{key}": value for key, value in rope.items()}


def is_equal(one: Any, other: Any, depth: int = 0) -> bool:
    """By value; numbers within what a trip through fp32 changes."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        try:
            return math.isclose(one, other, rel_tol=1e-6, abs_tol=0.0)
        except OverflowError:
            return one == other
    if isinstance(one, dict) and isinstance(other, dict) and depth < 8:
        keys = (set(one) | set(other)) - IGNORED
        return all(is_equal(one.get(key), other.get(key), depth + 1) for key in keys)
    if isinstance(one, list) and isinstance(other, list) and depth < 8:
        return len(one) == len(other) and all(is_equal(a, b, depth + 1) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _finding(config: ModelConfig, key: str, found: Any, expected: Any) -> Finding:
    place = config.place(_written(config, key))
    severity = Severity.INFO if key == "dtype" else None
    return Finding(
        location=Location(file=place.file, key=place.key),
        message=f"{place.file}: {place.key} is {_shown(found)}, the reference says {_shown(expected)}",
        severity=severity,
        measured={"value": _shown(found)},
        bound={"reference": _shown(expected)},
        fix=Fix(id="copy-config-key", safe=True),
    )


def _written(config: ModelConfig, key: str) -> str:
    """Where this config has the key, or would have it."""
    name = key.removeprefix("rope_parameters.")
    if name == key:
        return next((dtype for dtype in NOTED if dtype in config.text), key) if key == "dtype" else key
    if name in config.text:
        return name
    holder = next((rope for rope in ROPE if isinstance(config.text.get(rope), dict)), "rope_parameters")
    inner = config.text.get(holder)
    spelled = (
        "type"
        if name == "rope_type" and isinstance(inner, dict) and "rope_type" not in inner and "type" in inner
        else name
    )
    return f"{holder}.{spelled}"


def _shown(value: Any) -> str:
    return "absent" if value is None else str(value)[:SHOWN_CHARS]

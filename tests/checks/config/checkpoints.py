"""Small synthetic checkpoints of any family: every parameter of its list, all zero, as one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from degarble.api import check_source
from degarble.architectures import load_architecture
from degarble.checkpoint.interface import Source
from degarble.evidence import Evidence, Settings
from degarble.finding import Finding, Severity
from degarble.registry import Level, rules
from tests.memory_source import MemorySource

Shapes = dict[str, tuple[int, ...]]

BASE: Mapping[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
    "rope_theta": 10000.0,
}
_QWEN_MOE = {"num_experts": 4, "moe_intermediate_size": 24}
_SHARED = _QWEN_MOE | {"shared_expert_intermediate_size": 40}
_ROUTED = {"n_routed_experts": 4, "n_shared_experts": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1}
_MLA = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 7, "q_lora_rank": 20}
_LINEAR = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 6, "linear_value_head_dim": 5,
}  # fmt: skip

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {},
    "smollm3": {},
    "granite": {},
    "qwen2": {},
    "qwen2_moe": _SHARED,
    "qwen3": {},
    "qwen3_moe": _QWEN_MOE | {"mlp_only_layers": [0, 2]},
    "mixtral": {"num_local_experts": 4},
    "deepseek_v2": _MLA | _ROUTED,
    "deepseek_v3": _MLA | _ROUTED | {"num_nextn_predict_layers": 1},
    "deepseek_v32": _MLA | _ROUTED | {"index_n_heads": 3, "index_head_dim": 8},
    "gemma": {"tie_word_embeddings": True},
    "gemma2": {"tie_word_embeddings": True},
    "gemma3_text": {"tie_word_embeddings": True},
    "phi3": {},
    "gpt_oss": {"num_local_experts": 4},
    "glm4": {},
    "glm4_moe": _ROUTED | {"use_qk_norm": True},
    "minimax_m2": {"num_local_experts": 4},
    "qwen3_next": _SHARED | _LINEAR,
}
"""Model type -> what its config has beside BASE."""


def config_of(model_type: str, **more: Any) -> dict[str, Any]:
    """A config of one family."""
    return {**BASE, **FAMILIES[model_type], "model_type": model_type, "architectures": ["ForCausalLM"], **more}


def shapes_of(config: Mapping[str, Any], variants: tuple[str, ...] = ()) -> Shapes:
    """Needed parameters by name; of alternatives the named variants, else the first."""
    architecture = load_architecture(config)
    assert architecture is not None
    chosen: dict[str, str | None] = {}
    for template in architecture.templates:
        if template.group is not None and (template.group not in chosen or template.variant in variants):
            chosen[template.group] = template.variant
    return {
        name: template.shape or (1,)
        for template in architecture.templates
        if template.needed and (template.group is None or chosen[template.group] == template.variant)
        for name in template.names()
    }


def source(config: Mapping[str, Any], shapes: Shapes, more: Mapping[str, bytes] | None = None) -> MemorySource:
    """A folder with these tensors, all bf16."""
    header: dict[str, Any] = {}
    at = 0
    for name, shape in shapes.items():
        size = 2
        for axis in shape:
            size *= axis
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    weights = len(text).to_bytes(8, "little") + text + bytes(at)
    return MemorySource({"config.json": json.dumps(config).encode(), "model.safetensors": weights} | dict(more or {}))


def found(
    checkpoint: Source,
    *,
    level: Level = Level.CONTENT,
    reference: Source | None = None,
    worst: Severity = Severity.WARNING,
) -> list[Finding]:
    """What the config rules say, down to one severity; nothing may crash."""
    settings = Settings(level=level)
    healthy = Evidence(reference, settings) if reference is not None else None
    report = check_source(checkpoint, settings, healthy, [rule for rule in rules() if rule.startswith("CFG")])
    assert report.summary["crashed"] == 0, [result.reason for result in report.results]
    return [f for f in report.findings if f.severity is not None and f.severity.rank <= worst.rank]


def renamed(shapes: Shapes, rename: Callable[[str], str]) -> Shapes:
    """The same tensors under other names."""
    return {rename(name): shape for name, shape in shapes.items()}

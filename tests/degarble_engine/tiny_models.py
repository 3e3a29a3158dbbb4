"""Random models of a few thousand weights, one for each family, saved by transformers itself."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedConfig

from degarble_engine.numerics.tokens import TokenBatch, batch_of

SHAPE = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 256, "pad_token_id": None,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MOE = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
MLA = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", {"head_dim": 16}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "qwen3-moe": ("Qwen3MoeConfig", {**MOE, "head_dim": 16, "num_experts": 4}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4}),
    "gemma2": ("Gemma2Config", {"head_dim": 16, "sliding_window": 8}),
    "gemma3": ("Gemma3TextConfig", {"head_dim": 16, "sliding_window": 8}),
    "deepseek-v3": ("DeepseekV3Config", {**MOE, **MLA, "num_key_value_heads": 4, "n_routed_experts": 8,
                                         "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2,
                                         "topk_group": 1}),
    "deepseek-v2": ("DeepseekV2Config", {**MOE, **MLA, "num_key_value_heads": 4, "n_routed_experts": 8,
                                         "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 2,
                                         "topk_group": 1, "topk_method": "group_limited_greedy",
                                         "routed_scaling_factor": 4.0}),
    "gpt-oss": ("GptOssConfig", {"head_dim": 16, "num_local_experts": 4}),
}  # fmt: skip
SEQUENCES = ([1, 5, 7, 8, 9, 30, 44, 200, 22, 17, 100, 319, 4, 4, 77, 210], [3, 4, 250, 9, 31])


@cache
def _folder(family: str, text: str) -> Path:
    changes = json.loads(text)
    made = Path(tempfile.mkdtemp(prefix=f"degarble-{family}."))
    name, own = FAMILIES[family]
    config: PreTrainedConfig = getattr(transformers, name)(**{**SHAPE, **own, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config).eval()
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.data.normal_(0, 0.12)
            else:
                weight.data.add_(0.2 * torch.randn_like(weight))
        for buffer_name, buffer in model.named_buffers():
            if "correction" in buffer_name:
                buffer.normal_(0, 0.1)
    model.save_pretrained(made)
    return made


def folder(family: str, **changes: Any) -> Path:
    """A saved model; equal for equal arguments."""
    return _folder(family, json.dumps(changes, sort_keys=True))


def wanted_logits(path: Path, batch: TokenBatch) -> torch.Tensor:
    """What transformers' own model gives at the valid tokens. [tokens, vocab]"""
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=batch.ids, attention_mask=batch.valid.long()).logits[batch.valid]
    return found.float()


def tiny_batch() -> TokenBatch:
    """Two sequences of different length."""
    return batch_of(SEQUENCES, "test")

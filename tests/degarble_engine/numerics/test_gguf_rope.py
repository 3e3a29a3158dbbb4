"""Rotary settings from GGUF keys against transformers' own model with the same settings in its config."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from degarble.report.interface import Status
from degarble_engine.attribution.operators import ROPE_KEYS, differing_keys, is_same_rotation
from degarble_engine.comparison import Question, compare_models
from degarble_engine.numerics.walked_model import WalkedModel
from tests.degarble_engine.numerics.test_walk import TOLERANCE, distance, logits_of
from tests.degarble_engine.tiny_models import folder, tiny_batch, wanted_logits

gguf = pytest.importorskip("gguf")
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
BASE, ORIGINAL, HALF = 10000.0, 8, 8
LONG, SHORT = [1 + number / 2 for number in range(HALF)], [1 + number / 20 for number in range(HALF)]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": ({"rope_type": "linear", "factor": 4.0}, {"type": "linear", "factor": 4.0}),
    "linear by the old key": ({"rope_type": "linear", "factor": 2.0}, {"scale_linear": 2.0}),
    "yarn": (YARN, {"type": "yarn", "factor": 4.0, "original_context_length": 16}),
    "yarn with betas": (YARN | {"beta_fast": 8.0, "beta_slow": 2.0},
                        {"type": "yarn", "factor": 4.0, "original_context_length": 16, "yarn_beta_fast": 8.0,
                         "yarn_beta_slow": 2.0}),
    "yarn with its own attention factor": (YARN | {"attention_factor": 1.5 * (0.1 * math.log(4.0) + 1)},
                                           {"type": "yarn", "factor": 4.0, "original_context_length": 16,
                                            "attn_factor": 1.5}),
    "yarn with mscale": (YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
                         {"type": "yarn", "factor": 4.0, "original_context_length": 16, "yarn_log_multiplier": 0.5}),
    "longrope": ({"rope_type": "longrope", "long_factor": LONG, "short_factor": SHORT, "factor": 32.0,
                  "original_max_position_embeddings": ORIGINAL, "attention_factor": 1.2},
                 {"type": "longrope", "original_context_length": ORIGINAL, "attn_factor": 1.2}),
    "llama3": ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64}, {}),
}  # fmt: skip


def source(settings: dict[str, Any], **changes: Any) -> Path:
    return folder("qwen3", rope_parameters={"rope_theta": BASE} | settings, **changes)


def as_gguf(path: Path, out: Path, keys: dict[str, Any], tensors: dict[str, np.ndarray], width: int = 16) -> Path:
    """What llama.cpp's converter writes for Qwen3, unquantised, with `rope.…` keys as given."""
    config, weights = json.loads((path / "config.json").read_text()), load_file(path / "model.safetensors")
    writer = gguf.GGUFWriter(out, "qwen3")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_freq_base(BASE)
    writer.add_rope_dimension_count(width)
    for key, value in keys.items():
        name = f"qwen3.rope.{'' if key == 'scale_linear' else 'scaling.'}{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        else:
            writer.add_float32(name, value)
    for name, array in weights.items():
        owner = name.removesuffix(".weight")
        layer, _, leaf = owner.removeprefix("model.layers.").partition(".")
        short = TOP.get(owner) or f"blk.{layer}.{NAMES.get(leaf, leaf.replace('self_attn.', 'attn_'))}"
        writer.add_tensor(f"{short}.weight", array)
    for name, array in tensors.items():
        writer.add_tensor(f"{name}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def tensors_of(case: str) -> dict[str, np.ndarray]:
    if case == "longrope":
        return {"rope_factors_long": np.array(LONG, np.float32), "rope_factors_short": np.array(SHORT, np.float32)}
    if case != "llama3":
        return {}
    plain = WalkedModel.open(str(source({"rope_type": "default"})))
    scaled = WalkedModel.open(str(source(CASES[case][0])))
    before, after = (dict(one.skeleton.model.named_buffers()) for one in (plain, scaled))
    (name,) = (one for one in before if one.endswith("rotary_emb.inv_freq"))
    return {"rope_freqs": (before[name] / after[name]).numpy()}


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_same_settings_in_a_config(case: str, tmp_path: Path) -> None:
    settings, keys = CASES[case]
    path = source(settings)
    made = as_gguf(path, tmp_path / "model.gguf", keys, tensors_of(case))
    model, wanted = WalkedModel.open(str(made)), wanted_logits(path, tiny_batch())
    assert model.rope_not_applied is None
    assert distance(logits_of(model), wanted) < TOLERANCE
    assert distance(wanted_logits(source({"rope_type": "default"}), tiny_batch()), wanted) > 10 * TOLERANCE
    reference = WalkedModel.open(str(path))
    assert is_same_rotation(model, reference) is (case != "longrope")
    assert not [key for key, _, _ in differing_keys(reference, model) if key in ROPE_KEYS]


def test_a_part_of_each_head_is_turned(tmp_path: Path) -> None:
    path = source({"rope_type": "default", "partial_rotary_factor": 0.5})
    made = WalkedModel.open(str(as_gguf(path, tmp_path / "model.gguf", {}, {}, width=8)))
    assert made.config_values["partial_rotary_factor"] == 0.5


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"type": "spiral", "factor": 2.0}, "'spiral'"),
        ({"type": "yarn", "factor": "four"}, "rope.scaling.factor is no number"),
        ({"type": "yarn", "factor": float("nan")}, "rope.scaling.factor is nan"),
        ({"type": "longrope", "original_context_length": 8}, "without its tensors"),
        ({"type": "yarn", "factor": 4.0, "yarn_ext_factor": 0.5}, "extrapolation factor of 0.5"),
    ],
)
def test_what_cannot_be_applied_is_named(keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = source({"rope_type": "default"})
    made = WalkedModel.open(str(as_gguf(path, tmp_path / "model.gguf", keys, {})))
    assert made.rope_not_applied is not None and said in made.rope_not_applied
    if "spiral" in said:
        report = compare_models(made, WalkedModel.open(str(path)), Question())
        assert report.status == Status.PARTIAL and any(said in one for one in report.unjudged.values())

"""Models of random weights, made in numpy: nothing can be told of them, and nothing may be said.

Names are `random-INIT-HIDDENxLAYERS`, so that scripts.calibration.forms can quantise them like any other base.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from degarble.checkpoint.tensor_data import Array

Draw = Callable[[np.random.Generator, int, int], Array]
VOCABULARY = 256
HEAD = 32


def usual(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Normal, 0.02: transformers' initializer_range."""
    return rng.normal(0, 0.02, (rows, columns))


def xavier(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Uniform, Glorot's width."""
    limit = np.sqrt(6 / (rows + columns))
    return rng.uniform(-limit, limit, (rows, columns))


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Rows or columns of an orthogonal matrix."""
    size = max(rows, columns)
    return np.linalg.qr(rng.normal(size=(size, size)))[0][:rows, :columns]


def heavy(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Student's t with three degrees of freedom: a few large values in each row."""
    return 0.02 * rng.standard_t(3, (rows, columns))


def uneven(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Rows and columns of very different size, as training leaves them."""
    sizes = np.exp(rng.normal(0, 0.5, (rows, 1)) + rng.normal(0, 0.5, (1, columns)))
    return 0.02 * sizes * rng.normal(size=(rows, columns))


def shifted(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """A mean of a tenth of the standard deviation."""
    return rng.normal(0.002, 0.02, (rows, columns))


def low_rank(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """A few directions and noise."""
    rank = 8
    return 0.02 * (
        rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns)) / rank + rng.normal(size=(rows, columns))
    )


INITS: Mapping[str, Draw] = {
    "usual": usual, "xavier": xavier, "orthogonal": orthogonal, "heavy": heavy, "uneven": uneven, "shifted": shifted,
    "lowrank": low_rank,
}  # fmt: skip
SIZES = ("64x2", "128x5", "256x4")


def names() -> Iterator[str]:
    """Every init at every size."""
    return (f"random-{init}-{size}" for init in INITS for size in SIZES)


def untrained(name: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Weights and config of one."""
    _, init, size = name.split("-")
    hidden, layers = map(int, size.split("x"))
    rng, draw, inner = np.random.default_rng(zlib.crc32(name.encode())), INITS[init], hidden * 3
    shared = hidden // 2  # two query heads share a key head
    shapes = {
        "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (shared, hidden),
        "self_attn.v_proj": (shared, hidden), "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    weights = {"model.embed_tokens.weight": draw(rng, VOCABULARY, hidden), "model.norm.weight": np.ones(hidden)}
    for layer in range(layers):
        for leaf, shape in shapes.items():
            weights[f"model.layers.{layer}.{leaf}.weight"] = draw(rng, *shape)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{norm}.weight"] = 1 + rng.normal(0, 0.05, hidden)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "head_dim": HEAD,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": hidden // HEAD,
        "num_key_value_heads": shared // HEAD, "vocab_size": VOCABULARY, "tie_word_embeddings": True,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "dtype": "bfloat16",
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "attention_bias": False, "mlp_bias": False,
    }  # fmt: skip
    return {key: np.asarray(array, np.float32) for key, array in weights.items()}, config

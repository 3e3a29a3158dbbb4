"""GGUF metadata as a Hugging Face style config, with the GGUF key behind each value.

Sizes that GGUF gives per layer (`head_count_kv`, `feed_forward_length`) stay lists: `load_architecture` with
`container=Container.GGUF` gives every layer its own shape, and reads a size of 0 as "not in this layer".
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

from degarble.architectures.expression import ExpressionError, compile_expression
from degarble.architectures.gguf_names import gguf_tables

_TOKENS = "tokenizer.ggml.tokens"


def gguf_config(
    metadata: Mapping[str, object], vocab_rows: int | None, *, has_output: bool | None = None
) -> tuple[dict[str, object], dict[str, str]]:
    """The config, and a map from each HF key to the GGUF key it came from. Missing keys stay missing.

    `has_output` says whether the file has `output.weight`. GGUF does not declare tying: llama.cpp uses the
    embedding where the head is absent. Without the hint it says tied: a head is allowed, and never missed.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        return {}, {}
    config: dict[str, object] = {}
    origin: dict[str, str] = {}
    for key, candidates in gguf_tables()["keys"].items():
        for candidate in candidates:
            full = f"{architecture}.{candidate}"
            if full in metadata:
                config[key], origin[key] = _plain(metadata[full]), full
                break
    _add_vocabulary(config, origin, metadata, vocab_rows, architecture)
    _derive(config, origin)
    _take_mtp_out_of_layers(config)
    config["tie_word_embeddings"] = not has_output
    config["model_type"] = _model_type(architecture, config)
    origin["model_type"] = "general.architecture"
    return config, origin


def _plain(value: object) -> object:
    """NumPy scalars and arrays as plain values, a list of equal numbers as one of them."""
    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        value = to_list()
    if isinstance(value, (list, tuple)):
        numbers = [int(item) if isinstance(item, bool) else item for item in value]
        return numbers[0] if numbers and all(item == numbers[0] for item in numbers) else numbers
    return value


def _add_vocabulary(
    config: dict[str, object],
    origin: dict[str, str],
    metadata: Mapping[str, object],
    vocab_rows: int | None,
    architecture: str,
) -> None:
    """llama.cpp counts the token list; the `vocab_size` key and the embedding's rows stand in for it."""
    tokens = metadata.get(_TOKENS)
    if isinstance(tokens, Sized) and not isinstance(tokens, (str, bytes)) and len(tokens) > 0:
        config["vocab_size"], origin["vocab_size"] = len(tokens), _TOKENS
    elif f"{architecture}.vocab_size" in metadata:
        config["vocab_size"] = _plain(metadata[f"{architecture}.vocab_size"])
        origin["vocab_size"] = f"{architecture}.vocab_size"
    elif vocab_rows is not None:
        config["vocab_size"], origin["vocab_size"] = vocab_rows, "token_embd.weight"


def _derive(config: dict[str, object], origin: dict[str, str]) -> None:
    """Values that readers compute from others; left out where their sources are absent or unusable."""
    largest = {key: _largest(value) for key, value in config.items()}
    for key, row in gguf_tables()["derived"].items():
        if key in config:
            continue
        try:
            value = compile_expression(row["value"]).evaluate(largest)
        except ExpressionError:
            continue
        config[key] = largest[key] = value
        origin[key] = origin.get(row["from"], row["from"])


def _largest(value: object) -> object:
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        return max(value)
    return value


def _take_mtp_out_of_layers(config: dict[str, object]) -> None:
    """GGUF's block_count includes the multi-token prediction blocks, HF's num_hidden_layers does not."""
    layers, mtp = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
    if isinstance(layers, int) and isinstance(mtp, int) and 0 < mtp < layers:
        config["num_hidden_layers"] = layers - mtp


def _model_type(architecture: str, config: Mapping[str, object]) -> str:
    """The HF model type; GGUF's own name for an architecture without a counterpart here."""
    known: dict[str, Any] = {"num_local_experts": 0, "expert_gating_func": 0, **config}
    for model_type, condition in gguf_tables()["model_types"].get(architecture, ()):
        try:
            if compile_expression(condition).evaluate(known):
                return str(model_type)
        except ExpressionError:
            continue
    return architecture

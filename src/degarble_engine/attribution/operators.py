"""What is not a weight: numbers of the config that change what is computed, and the ids of the text.

A difference in the config is proved by its effect, not by being there: the reference is run with the candidate's value in
that one key. An epsilon of 1e-6 for 1e-5 costs nothing (KL 0.0000) and is an info; a lost rotary base is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from degarble.checks.config.config_differs_from_reference import IGNORED, is_equal
from degarble.evidence import Evidence
from degarble_engine.numerics.tokens import tokenizer_of
from degarble_engine.numerics.walked_model import WalkedModel

NOT_COMPUTED = IGNORED | {
    "vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
    "decoder_start_token_id", "torch_dtype", "dtype", "tie_word_embeddings", "initializer_range", "architectures",
    "model_type", "attention_dropout", "router_aux_loss_coef", "name_or_path", "id2label", "label2id", "problem_type",
    "is_encoder_decoder", "add_cross_attention", "chunk_size_feed_forward", "hidden_dropout", "return_dict",
    "cross_attention_hidden_size", "finetuning_task", "max_window_layers",
}  # fmt: skip
"""Keys that no forward pass reads, or that only the shapes of tensors can prove."""
SAME_FREQUENCY = 1e-5
CHANGING = ("dynamic", "longrope")
"""Kinds of rotary scaling that look at the length."""
ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")


def differing_keys(reference: WalkedModel, candidate: WalkedModel) -> Iterator[tuple[str, Any, Any]]:
    """(key, candidate's value, reference's value) by transformers' own config of both, defaults filled in."""
    mine, theirs = _values(candidate), _values(reference)
    known = NOT_COMPUTED | (frozenset(ROPE_KEYS) if is_same_rotation(candidate, reference) else frozenset())
    for key in sorted(mine.keys() | theirs.keys()):
        if key not in known and not is_equal(mine.get(key), theirs.get(key)):
            yield key, mine.get(key), theirs.get(key)


def is_same_rotation(one: WalkedModel, other: WalkedModel) -> bool:
    """Whether both turn and scale alike whatever their configs call it: a GGUF file has Llama 3's frequencies as a tensor."""
    mine, theirs = _rotation(one), _rotation(other)
    if mine is None or theirs is None or mine.keys() != theirs.keys():
        return False
    return all(found.shape == theirs[name].shape and torch.allclose(found, theirs[name], rtol=SAME_FREQUENCY)
               for name, found in mine.items())  # fmt: skip


def _rotation(model: WalkedModel) -> dict[str, Tensor] | None:
    """Frequencies and scales of attention; None where they change with the length of the text."""
    found: dict[str, Tensor] = {}
    for name, module in model.skeleton.model.named_modules():
        if str(getattr(module, "rope_type", "default")) in CHANGING:
            return None
        found |= {f"{name}.{key}": value.double() for key, value in module._buffers.items()
                  if key.endswith("inv_freq") and not key.startswith("original") and isinstance(value, Tensor)}  # fmt: skip
        for key in ("scaling", "attention_scaling"):
            value = getattr(module, key, None)
            if isinstance(value, (int, float)):
                found[f"{name}.{key}"] = torch.tensor(float(value), dtype=torch.float64)
    return found


def _values(model: WalkedModel) -> dict[str, Any]:
    found: dict[str, Any] = model.skeleton.config.to_dict()
    return {key: value for key, value in found.items() if not key.startswith("_")}


def with_key(values: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A config with one key of another's; older spellings of rotary settings must not win over the new one."""
    dropped = ROPE_KEYS if key in ROPE_KEYS else (key,)
    return {name: old for name, old in values.items() if name not in dropped} | {key: value}


def written_key(model: WalkedModel, key: str) -> str:
    """The key as the file spells it, where rotary settings are concerned."""
    if key in model.config_values or key not in ROPE_KEYS:
        return key
    return next((one for one in ROPE_KEYS if one in model.config_values), key)


def differing_ids(texts: Sequence[str], reference: Evidence, candidate: Evidence) -> tuple[int, str] | None:
    """Of how many texts the ids differ, and the first such text; None where the two cannot be compared."""
    mine, theirs = tokenizer_of(candidate), tokenizer_of(reference)
    if mine is None or theirs is None:
        return None
    wrong = [text for text in texts if mine.encode(text).ids != theirs.encode(text).ids]
    return len(wrong), wrong[0] if wrong else ""

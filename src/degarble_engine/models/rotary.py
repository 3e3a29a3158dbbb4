"""Rotary position embeddings (Su et al., 2021): tables by position, and the two ways in which lanes are paired.

    halves        lane i turns with lane i + d / 2        Llama, Qwen, Mistral
    interleaved   lane 2 i turns with lane 2 i + 1        DeepSeek's files

Frequencies of the stretched kinds (linear, yarn, llama3) are transformers' own, so that a config means here what it
means there. Kinds whose frequencies depend on how long the text is (dynamic, longrope) are refused: rows in the cache
would have to turn again as it grows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from degarble.errors import TargetError
from degarble_engine.compiled.kernels import loops_for
from degarble_engine.models.elementwise import in_whole_vectors

SUPPORTED = frozenset({"default", "linear", "yarn", "llama3"})


class Rotary:
    """cos and sin of one model."""

    def __init__(self, config: Any, head_dim: int) -> None:
        """`head_dim`: lanes that turn. Raises TargetError for a kind that is not supported."""
        parameters: dict[str, Any] = dict(config.rope_parameters)
        kind = str(parameters.get("rope_type", "default"))
        if kind not in SUPPORTED or float(parameters.get("partial_rotary_factor") or 1.0) != 1.0:
            known = ", ".join(sorted(SUPPORTED))
            raise TargetError(
                f"rope type {kind!r} (partial factor {parameters.get('partial_rotary_factor')}): the engine has {known}"
            )
        if kind == "default":
            lanes = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
            self._frequencies, self._factor = 1.0 / (float(parameters["rope_theta"]) ** lanes), 1.0
        else:
            self._frequencies, self._factor = ROPE_INIT_FUNCTIONS[kind](config)

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin [num_tokens, 1, head_dim / 2] for the positions of a step."""
        angles = positions[:, None].float() * self._frequencies.to(positions.device)
        cos, sin = in_whole_vectors(torch.cos, angles), in_whole_vectors(torch.sin, angles)
        return (cos * self._factor).to(dtype)[:, None], (sin * self._factor).to(dtype)[:, None]


def turn_halves(lanes: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[num_tokens, heads, d], lane i with lane i + d / 2."""
    low, high = lanes.chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def turn_first(heads: Tensor, num_turned: int, cos: Tensor, sin: Tensor) -> Tensor:
    """`turn_halves` of the first heads of [num_tokens, heads, d]."""
    loops = loops_for(heads)
    if loops is None:
        return turn_halves(heads[:, :num_turned], cos, sin)
    heads = heads.contiguous()
    found = heads.new_empty(heads.shape[0], num_turned, heads.shape[2])
    loops.rows.turn(heads.numpy(), num_turned, cos.numpy(), sin.numpy(), found.numpy())
    return found


def turn_interleaved(lanes: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[num_tokens, heads, d], lane 2 i with lane 2 i + 1; the result has its lanes in halves, for q and k alike."""
    even, odd = lanes[..., 0::2], lanes[..., 1::2]
    return torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1)

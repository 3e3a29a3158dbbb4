"""The range walk as `compare --dtype float16` makes it: of the candidate, on the tokens that were compared.

Two arithmetics only, since each costs a forward pass: every operator in half as transformers' eager code has it (what the
compared candidate is simulated in), and scores of attention in fp32 as the fused kernels of servers keep them.
`degarble overflow` runs all engines and long texts.
"""

from __future__ import annotations

import torch

from degarble.evidence.overflow_walk import OverflowWalk
from degarble_engine.numerics.precision import Precision
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.overflow.range_walk import range_walk
from degarble_engine.overflow.switches import lanes_of
from degarble_engine.overflow.verdict import evidence_of

ENGINES = ("transformers", "vllm")


def is_half(precision: Precision) -> bool:
    """Whether the candidate was asked for in fp16, with norms in fp32 or without."""
    return precision.dtype is torch.float16


def served_half(candidate: WalkedModel, batch: TokenBatch) -> tuple[OverflowWalk, dict[str, str]]:
    """What the rules judge, and what could not be judged. Weights are read in fp32 once more: the lanes round themselves."""
    wide = WalkedModel(candidate.evidence, edit=candidate.edit, config_values=dict(candidate.config_values))
    lanes = lanes_of(["fp16"], ENGINES)
    walk = range_walk(wide, [batch], lanes)
    return evidence_of(walk, lanes), walk.inputs.unjudged | walk.inputs.unseen()

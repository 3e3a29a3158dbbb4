"""s_t: how much the loss leans on what the model holds of one token.

    s_t = sqrt( mean over layers l = 0 … L of || dL / dx_t^l ||^2 )        x^l: the residual stream before layer l

L and its labels as in backward_walk.py. A rounding error at a token with a large s_t moves the answers more; what follows
the token in the text leans on it too, so a token's number is known only when its text is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.calibration_stream import Chunk
from degarble_engine.sensitivity.backward_walk import BackwardWalk


def token_gradients(
    model: WalkedModel, chunks: Sequence[Chunk], scratch: Path, *, seed: int = 0, progress: Watch | None = None
) -> Tensor:
    """Of all valid tokens, in the order of chunks. [tokens]"""
    walk = BackwardWalk(model=model, chunks=chunks, scratch=scratch, paths=lambda *_: (), seed=seed, progress=progress)
    squares = {chunk.number: torch.zeros(int(chunk.valid.sum()), dtype=torch.float64) for chunk in chunks}
    for layer in walk:
        for one in layer:
            squares[one.chunk.number] += _squares(one.output_gradient, one.chunk)
    for chunk, gradient in zip(chunks, walk.input_gradients, strict=True):
        squares[chunk.number] += _squares(gradient, chunk)
    whole = torch.cat([squares[chunk.number] for chunk in chunks])
    return (whole / (model.num_layers + 1)).sqrt().float()


def _squares(gradient: Tensor, chunk: Chunk) -> Tensor:
    return gradient[chunk.valid].double().square().sum(-1)

"""What a quantised model would say if some tokens were multiplied with the reference's weights.

Every linear (and every set of fused experts) multiplies the rows of chosen tokens with the reference's matrix and all others
with its own, as an engine that holds both would. What a chosen token leaves in the K/V cache is then of the higher
precision as well, and read by all tokens after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from degarble_engine.numerics.tap import is_experts
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel


@torch.no_grad()
def mixed_states(candidate: WalkedModel, reference: WalkedModel, batch: TokenBatch, chosen: Tensor) -> Tensor:
    """Hidden states behind the last layer, valid tokens. `chosen` [batch, tokens] bool. [tokens, hidden]"""
    hidden = candidate.start(batch)
    reference.start(batch)
    for index in range(candidate.num_layers):
        with candidate.layer(index) as layer, reference.layer(index) as exact, _mixed(layer, exact, chosen.flatten()):
            hidden = candidate.run(index, layer, hidden)
    return hidden[batch.valid]


@contextmanager
def _mixed(layer: nn.Module, exact: nn.Module, chosen: Tensor) -> Iterator[None]:
    handles = []
    try:
        for path, module in layer.named_modules():
            if isinstance(module, nn.Linear) or is_experts(module):
                handles.append(module.register_forward_hook(_exchange(exact.get_submodule(path), chosen)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _exchange(exact: nn.Module, chosen: Tensor) -> Any:
    def exchange(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        rows = [one.reshape(-1, one.shape[-1])[chosen] for one in arguments if isinstance(one, Tensor)]
        mixed = output.clone()
        mixed.view(-1, output.shape[-1])[chosen] = exact(*rows).to(output.dtype)
        return mixed

    return exchange

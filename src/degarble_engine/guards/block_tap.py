"""The outputs of every attention and feed-forward block, taken in passing, and one number for each row: its std.

A tap sits in the layer's place of its block, so it sees what the engine computes and nothing is computed twice. It is
open during one step in `EVERY`, and then only keeps the outputs it sees; the numbers are worked out after the step, all
blocks at once, since sixty small reductions would cost more than a layer. Steps with more than `MAX_KEPT_ROWS` tokens
are measured block by block, so that no prompt's activations pile up.

Like a hook (degarble_engine.hooks) a tap is Python code: a compiled or captured model may never call it. Then calls are
missing, and `silence` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

EVERY = 8
"""Steps from one that is measured to the next."""
MAX_KEPT_ROWS = 64
BLOCKS = {"_attention": "self_attn", "_feed_forward": "mlp"}
"""Attribute of a layer -> the name its block has in checkpoints."""


class BlockTap:
    """Taps in all layers of one model; `remove` takes them out."""

    def __init__(self, layers: list[Any]) -> None:
        self.names: list[str] = []
        self.is_open = False
        self._seen: list[Tensor] = []
        self._places: list[tuple[Any, str, Any]] = []
        self.install(layers)

    def install(self, layers: list[Any]) -> None:
        """Put taps into the layers, over whatever is there now."""
        self.names.clear()
        for index, layer in enumerate(layers):
            for attribute, name in BLOCKS.items():
                block = getattr(layer, attribute, None)
                if callable(block):
                    self._places.append((layer, attribute, block))
                    self.names.append(f"model.layers.{index}.{name}")
                    setattr(layer, attribute, self._tapped(block))

    @property
    def silence(self) -> str | None:
        """Why no number can come; None if there are taps."""
        return None if self.names else "the model's layers have no blocks that can be tapped"

    def _tapped(self, block: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*arguments: Any, **options: Any) -> Tensor:
            output = block(*arguments, **options)
            if self.is_open:
                self._seen.append(output if output.shape[0] <= MAX_KEPT_ROWS else output.float().std(-1))
            return output

        return call

    def open(self) -> None:
        """Keep what the next forward pass computes."""
        self._seen.clear()
        self.is_open = True

    def take(self) -> Tensor | None:
        """[blocks, rows] std of each row, and close; None if not every block was called once."""
        self.is_open = False
        seen, self._seen = self._seen, []
        if len(seen) != len(self.names) or len({one.shape[0] for one in seen}) != 1:
            return None
        if seen[0].ndim == 1:
            return torch.stack(seen).cpu()
        return torch.stack(seen).float().std(-1).cpu()

    def remove(self) -> None:
        """Put the blocks back."""
        for layer, attribute, block in self._places:
            setattr(layer, attribute, block)
        self._places.clear()

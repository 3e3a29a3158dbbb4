"""The layer walk backwards: the gradient of the loss at every layer, with the weights of one layer in memory.

    forwards    hidden states before every layer are put on disk
    the head    labels are drawn from the model itself; dL/dh of L = - log p(label), in blocks of the vocabulary
    backwards   each layer runs once more on its stored input, with a graph, and hands the gradient down

Labels that the model draws itself make the mean of squared gradients the Fisher information, which is the curvature of
the KL divergence to this very model: KL(p || p') = 1/2 d^T F d for a small change d of anything inside.
Paper: Martens 2020, arXiv:1412.1193, section 5 (why labels must be drawn, not taken from the text).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from degarble_engine.numerics.divergence import OnlineSum
from degarble_engine.numerics.tap import Taps
from degarble_engine.numerics.walk import Watch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.calibration_stream import Chunk
from degarble_engine.quantize.shelf import Shelf


@dataclass(slots=True)
class Call:
    """What a module read in one chunk, and how the loss leans on what it gave."""

    arguments: tuple[Any, ...]
    output: Tensor  # as it came, padding included
    gradient: Tensor  # of the output
    taps: Taps

    def rows(self, values: Tensor) -> Tensor:
        """Valid tokens only. [tokens, out]"""
        return self.taps.rows(values)


@dataclass(slots=True)
class LayerGradients:
    """One layer of one chunk."""

    index: int
    layer: nn.Module
    calls: dict[str, Call]
    """By path of the module within the layer."""
    output_gradient: Tensor  # [batch, tokens, hidden]
    chunk: Chunk


@dataclass(slots=True, kw_only=True)
class BackwardWalk:
    """Iterate: layers from the last to the first, and in each all chunks."""

    model: WalkedModel
    chunks: Sequence[Chunk]
    scratch: Path
    paths: Callable[[int, nn.Module], Sequence[str]]
    """Modules of a layer whose calls are wanted."""
    seed: int = 0
    progress: Watch | None = None
    _gradients: list[Tensor] = field(default_factory=list)

    def __iter__(self) -> Iterator[list[LayerGradients]]:
        """All chunks of one layer; its weights are there as long as the step lasts."""
        shelf = Shelf(self.scratch)
        try:
            self._forwards(shelf)
            self._gradients = [self._of_head(chunk) for chunk in self.chunks]
            for index in reversed(range(self.model.num_layers)):
                with self.model.layer(index) as layer:
                    yield [self._backwards(index, layer, chunk, shelf) for chunk in self.chunks]
                self._tell(2 * self.model.num_layers - index)
        finally:
            shelf.clear()

    @property
    def input_gradients(self) -> list[Tensor]:
        """Of every chunk, before the first layer; after the walk."""
        return self._gradients

    def _tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, 2 * self.model.num_layers)

    def _forwards(self, shelf: Shelf) -> None:
        for index in range(self.model.num_layers):
            with self.model.layer(index) as layer:
                for chunk in self.chunks:
                    shelf.put(chunk.number, f"in.{index}", chunk.hidden)
                    chunk.hidden = chunk.model.run(index, layer, chunk.hidden)
            self._tell(index + 1)

    def _of_head(self, chunk: Chunk) -> Tensor:
        """dL/dh behind the last layer, zero at padding."""
        states = chunk.hidden[chunk.valid]
        labels, total = self._drawn(chunk, states)
        found = torch.zeros_like(states)
        for rows in chunk.model.head_blocks():
            with torch.enable_grad(), chunk.model.head(rows):
                leaf = states.detach().requires_grad_()
                logits = chunk.model.skeleton.logits(leaf[None])[0].float()
                slope = (logits.detach() - total[:, None]).exp()
                is_here = (labels >= rows[0]) & (labels < rows[1])
                slope[is_here, labels[is_here] - rows[0]] -= 1
                found += torch.autograd.grad(logits, leaf, slope)[0]
        wide = torch.zeros_like(chunk.hidden)
        wide[chunk.valid] = found
        return wide

    def _drawn(self, chunk: Chunk, states: Tensor) -> tuple[Tensor, Tensor]:
        """(labels, log sum exp): the largest of logits plus Gumbel noise is a draw (Gumbel 1954), block by block."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + chunk.number)
        count = states.shape[0]
        labels, best = torch.zeros(count, dtype=torch.long), torch.full((count,), -math.inf)
        sums = OnlineSum(count)
        for rows in chunk.model.head_blocks():
            logits = chunk.model.logits(states, rows)
            sums.add(logits, rows[0])
            noise = -torch.empty_like(logits).exponential_(generator=generator).log()
            value, where = (logits + noise).max(1)
            labels = torch.where(value > best, where + rows[0], labels)
            best = torch.maximum(best, value)
        return labels, sums.log()

    def _backwards(self, index: int, layer: nn.Module, chunk: Chunk, shelf: Shelf) -> LayerGradients:
        stored = shelf.get(chunk.number, f"in.{index}")
        assert stored is not None
        taps, calls = Taps(chunk.valid), {}
        kept: dict[str, tuple[tuple[Any, ...], Tensor]] = {}

        def note(path: str) -> Any:
            def keep(_: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
                kept[path] = (arguments, output[0] if isinstance(output, tuple) else output)

            return keep

        wanted = list(self.paths(index, layer))
        handles = [layer.get_submodule(path).register_forward_hook(note(path)) for path in wanted]
        try:
            with torch.enable_grad():
                leaf = stored.requires_grad_()
                output = chunk.model.differentiable(index, layer, leaf)
                after = self._gradients[chunk.number]
                leaves = [leaf, *(kept[path][1] for path in wanted if path in kept)]
                found = torch.autograd.grad(output, leaves, after, allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
        for path, gradient in zip([path for path in wanted if path in kept], found[1:], strict=True):
            if gradient is not None:
                arguments, made = kept[path]
                plain = tuple(one.detach() if isinstance(one, Tensor) else one for one in arguments)
                calls[path] = Call(plain, made.detach(), gradient, taps)
        assert found[0] is not None
        self._gradients[chunk.number] = found[0].detach()
        return LayerGradients(index, layer, calls, after, chunk)

"""Calibration text in chunks of sequences, on its way through the layers: in the reference and behind what is quantised.

    chunk 0   reference  h_ref  ->  layer as stored     ->  h_ref'
              quantised  h      ->  layer as quantised  ->  h'

Inputs of linears are caught by running a layer only as far as the linear. Linears that are settled (quantised already)
are not multiplied again in later passes over the same layer: their outputs come from the shelf. Attention as a whole, too,
once its linears are settled: on 512 tokens it costs as much as they do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from degarble_engine.numerics.tap import Taps, is_experts
from degarble_engine.numerics.tokens import TokenBatch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.shelf import Shelf

CHUNK_TOKENS = 2048


@dataclass(slots=True)
class Chunk:
    """Some sequences."""

    number: int
    model: WalkedModel
    """The same model, with the arguments that its layers get for these sequences."""
    valid: Tensor  # [batch, tokens] bool
    reference: Tensor  # [batch, tokens, hidden]
    hidden: Tensor  # [batch, tokens, hidden]


@dataclass(frozen=True, slots=True)
class Caught:
    """The input of a module, valid tokens only."""

    rows: Tensor  # [tokens, in]
    experts: Tensor | None = None  # [tokens, chosen] expert numbers


class _Reached(Exception):
    """The module that was waited for is about to run."""


def chunks_of(model: WalkedModel, batch: TokenBatch) -> list[Chunk]:
    """Cut a batch; every chunk starts at the embedding."""
    size = max(1, CHUNK_TOKENS // batch.ids.shape[1])
    found = []
    for number, start in enumerate(range(0, batch.ids.shape[0], size)):
        own = model.counterfactual()
        part = TokenBatch(
            ids=batch.ids[start : start + size], valid=batch.valid[start : start + size], origin=batch.origin
        )
        hidden = own.start(part)
        found.append(Chunk(number, own, part.valid, hidden, hidden))
    return found


@torch.no_grad()
def stages_of(chunk: Chunk, index: int, layer: nn.Module, paths: Sequence[str]) -> list[list[str]]:
    """Modules in the order in which they run; those that read one and the same tensor together."""
    calls: list[tuple[str, Tensor]] = []

    def note(path: str) -> Any:
        return lambda _, args: calls.append((path, args[0]))

    handles = [layer.get_submodule(path).register_forward_pre_hook(note(path)) for path in paths]
    try:
        chunk.model.run(index, layer, chunk.hidden)
    finally:
        for handle in handles:
            handle.remove()
    stages: list[list[str]] = []
    last: Tensor | None = None
    for path, read in calls:
        if read is last and not is_experts(layer.get_submodule(path)):
            stages[-1].append(path)
        else:
            stages.append([path])
        last = read
    return stages


@torch.no_grad()
def inputs_of_all(
    chunk: Chunk, index: int, layer: nn.Module, hidden: Tensor, stages: Sequence[Sequence[str]]
) -> tuple[dict[str, Tensor], Tensor]:
    """The input of the first module of every stage, and the layer's output."""
    taps = Taps(chunk.valid)
    caught: dict[str, Tensor] = {}

    def note(path: str) -> Any:
        def keep(_: nn.Module, args: tuple[Any, ...]) -> None:
            caught[path] = taps.rows(args[0])

        return keep

    handles = [layer.get_submodule(stage[0]).register_forward_pre_hook(note(stage[0])) for stage in stages]
    try:
        output = chunk.model.run(index, layer, hidden)
    finally:
        for handle in handles:
            handle.remove()
    return caught, output


@torch.no_grad()
def input_of(chunk: Chunk, index: int, layer: nn.Module, path: str) -> Caught | None:
    """What a module reads behind the quantised prefix; the layer runs no further. None if it is not reached."""
    taps = Taps(chunk.valid)
    found: list[Caught] = []

    def stop(module: nn.Module, args: tuple[Any, ...]) -> None:
        experts = taps.rows(args[1]) if is_experts(module) else None
        found.append(Caught(taps.rows(args[0]), experts))
        raise _Reached

    handle = layer.get_submodule(path).register_forward_pre_hook(stop)
    try:
        chunk.model.run(index, layer, chunk.hidden)
    except _Reached:
        pass
    finally:
        handle.remove()
    return found[0] if found else None


@contextmanager
def remembering(
    layer: nn.Module, paths: Sequence[str], shelf: Shelf, chunk: int, blocks: Sequence[str] = ()
) -> Iterator[None]:
    """Settled linears answer from the shelf, or put what they compute there; so do blocks that are settled as a whole."""
    replaced: list[nn.Module] = []
    for path in [*paths, *blocks]:
        module = layer.get_submodule(path)
        if path not in blocks and not isinstance(module, nn.Linear):
            continue
        module.forward = (_block_from_shelf if path in blocks else _from_shelf)(module, path, shelf, chunk)
        replaced.append(module)
    try:
        yield
    finally:
        for module in replaced:
            del module.__dict__["forward"]


def settled_blocks(sites: Iterable[str], settled: Collection[str]) -> list[str]:
    """Children of the layer whose linears are all settled: what they compute is the same in every later pass."""
    inside: dict[str, list[str]] = {}
    for path in sites:
        child, _, rest = path.partition(".")
        if rest:
            inside.setdefault(child, []).append(path)
    return [child for child, paths in inside.items() if all(path in settled for path in paths)]


def _block_from_shelf(module: nn.Module, path: str, shelf: Shelf, chunk: int) -> Any:
    """The first output of attention is what the layer goes on with; the others (its weights) are dropped by all layers."""
    compute = module.forward

    def forward(*args: Any, **named: Any) -> Any:
        known, count = shelf.get(chunk, f"out.{path}"), shelf.get(chunk, f"count.{path}")
        if known is not None and count is not None:
            others = int(count)
            return known if others < 0 else (known, *[None] * others)
        made = compute(*args, **named)
        first = made[0] if isinstance(made, tuple) else made
        if isinstance(first, Tensor) and first.dtype == torch.float32:
            shelf.put(chunk, f"out.{path}", first)
            shelf.put(chunk, f"count.{path}", torch.tensor(len(made) - 1 if isinstance(made, tuple) else -1))
        return made

    return forward


def _from_shelf(module: nn.Module, path: str, shelf: Shelf, chunk: int) -> Any:
    compute = module.forward

    def forward(values: Tensor) -> Tensor:
        known = shelf.get(chunk, f"out.{path}")
        if known is None:
            known = compute(values)
            shelf.put(chunk, f"out.{path}", known)
        return known

    return forward

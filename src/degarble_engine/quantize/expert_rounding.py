"""What fused experts read: gate and up the tokens that the router sends them, down what gate and up make of those.

Sums of all experts at once would be as many matrices as there are experts; they are made for a few experts at a time, in
as many passes over the chunks as MAX_SUM_BYTES asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from degarble_engine.quantize.calibration_stream import Caught, Chunk
from degarble_engine.quantize.input_statistics import InputStatistics
from degarble_engine.quantize.site import FUSED

MAX_SUM_BYTES = 256 << 20
STARVED_TOKENS = 32
"""Fewer than this say nothing of an expert's inputs."""
Catch = Callable[[Chunk], Caught | None]


@dataclass(slots=True)
class ExpertSums:
    """What one expert reads, and how many tokens the router itself sent there."""

    statistics: InputStatistics
    reached: int = 0


def expert_statistics(
    chunks: Sequence[Chunk], catch: Catch, module: nn.Module, leaf: str
) -> Iterator[dict[int, ExpertSums]]:
    """Expert number -> its sums, a few experts at a time.

    An expert that got fewer than STARVED_TOKENS is given every token of the text, as if all had been sent there: what it
    reads then is no longer its own kind of token, but a Hessian of all kinds is better than none.
    """
    parameter = module._parameters[leaf]
    assert parameter is not None
    count, size = parameter.shape[0], parameter.shape[2]
    together = max(1, MAX_SUM_BYTES // (4 * size * size))
    for start in range(0, count, together):
        numbers = range(start, min(start + together, count))
        found = {number: ExpertSums(InputStatistics.empty(size, has_reference=False)) for number in numbers}
        for number, rows in _sent(chunks, catch, numbers):
            found[number].statistics.add(_read(module, leaf, number, rows))
            found[number].reached += rows.shape[0]
        starved = [number for number in numbers if found[number].reached < STARVED_TOKENS]
        for number in starved:
            found[number].statistics = InputStatistics.empty(size, has_reference=False)
        for number, rows in _sent(chunks, catch, starved, everything=True):
            found[number].statistics.add(_read(module, leaf, number, rows))
        yield found


def _sent(
    chunks: Sequence[Chunk], catch: Catch, numbers: Sequence[int], *, everything: bool = False
) -> Iterator[tuple[int, Tensor]]:
    """(expert, tokens that are sent to it), chunk by chunk; with `everything`, all tokens to each."""
    if not numbers:
        return
    for chunk in chunks:
        caught = catch(chunk)
        if caught is None or caught.experts is None:
            continue
        for number in numbers:
            rows = caught.rows if everything else caught.rows[(caught.experts == number).any(1)]
            if rows.shape[0]:
                yield number, rows


def _read(module: nn.Module, leaf: str, number: int, rows: Tensor) -> Tensor:
    return rows if leaf == FUSED else inner_of(module, number, rows)


def inner_of(module: nn.Module, number: int, rows: Tensor) -> Tensor:
    """What an expert's down projection reads. [tokens, width]"""
    fused = module._parameters[FUSED]
    assert fused is not None
    both = nn.functional.linear(rows, fused.data[number])
    apply_gate = getattr(module, "_apply_gate", None)
    if apply_gate is not None:
        gated: Tensor = apply_gate(both)
        return gated
    gate, up = both.chunk(2, -1)
    activation = getattr(module, "act_fn", torch.nn.functional.silu)
    return activation(gate) * up

"""What fused experts read: gate and up the tokens that the router sends them, down what gate and up make of those.

Sums of all experts at once would be as many matrices as there are experts; they are made for a few experts at a time, in
as many passes over the chunks as MAX_SUM_BYTES asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from degarble_engine.quantize.calibration_stream import Caught, Chunk
from degarble_engine.quantize.input_statistics import InputStatistics
from degarble_engine.quantize.site import FUSED

MAX_SUM_BYTES = 256 << 20
Catch = Callable[[Chunk], Caught | None]


def expert_statistics(
    chunks: Sequence[Chunk], catch: Catch, module: nn.Module, leaf: str
) -> Iterator[dict[int, InputStatistics]]:
    """Expert number -> sums of what it reads, a few experts at a time."""
    parameter = module._parameters[leaf]
    assert parameter is not None
    count, size = parameter.shape[0], parameter.shape[2]
    together = max(1, MAX_SUM_BYTES // (4 * size * size))
    for start in range(0, count, together):
        numbers = range(start, min(start + together, count))
        found = {number: InputStatistics.empty(size, has_reference=False) for number in numbers}
        for chunk in chunks:
            caught = catch(chunk)
            if caught is None or caught.experts is None:
                continue
            for number in numbers:
                rows = caught.rows[(caught.experts == number).any(1)]
                if rows.shape[0]:
                    found[number].add(rows if leaf == FUSED else inner_of(module, number, rows))
        yield found


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

"""A live cache laid beside what it should hold: which rows are wrong, and which of these something explains.

The error of a row is ||found - exact|| / ||exact|| over its heads and lanes. A row is right up to

    8 x the largest error that rounding the hidden state gives in this layer  +  4 x the cache's own half step

and never more than 0.35. Measured on SmolLM2-135M served by our engine, 152 tokens: the worst healthy row stands at 0.24
of that in bf16, 0.04 in fp32 and 0.41 where INT4 weights are served in bf16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from degarble.errors import TargetError
from degarble_engine.live_cache.recomputed import LayerRows
from degarble_engine.live_cache.request_file import LiveRequest

FLOOR_FACTOR, STEP_FACTOR, MAX_BOUND, TINY = 8.0, 4.0, 0.35, 1e-12
HALF_STEP = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float8_e4m3fn: 2.0**-4,
             torch.float8_e5m2: 2.0**-3}  # fmt: skip
"""Largest relative error of rounding to nearest."""
Expected = Callable[["Laid", int, str], Tensor | None]
"""(laid, layer, part) -> what rows would be if something had gone wrong in this way; None where it cannot have."""


@dataclass(slots=True)
class Laid:
    """Rows of all layers that were dumped, found and exact, [tokens, heads, lanes] by layer and part."""

    request: LiveRequest
    rows: dict[int, LayerRows] = field(default_factory=dict)
    found: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    bounds: dict[tuple[int, str], float] = field(default_factory=dict)
    worst: dict[tuple[int, str], float] = field(default_factory=dict)
    wrong: dict[tuple[int, str], Tensor] = field(default_factory=dict)
    """[tokens] bool; rows are taken out as they are explained."""

    def add(self, rows: LayerRows) -> None:
        """Lay one layer down. Raises TargetError where the shapes are another model's."""
        held = self.request.held()
        found = self.request.rows(rows.layer)
        self.rows[rows.layer], self.found[rows.layer] = rows, found
        if set(found) != set(rows.exact):
            raise TargetError(
                f"{self.request.path}: holds {', '.join(sorted(found))}, the model's cache has "
                f"{', '.join(sorted(rows.exact))}"
            )
        for part, exact in rows.exact.items():
            if found[part].shape != exact.shape:
                raise TargetError(
                    f"{self.request.path}: {part} of layer {rows.layer} is [tokens, heads, lanes] "
                    f"{list(found[part].shape)}, the model's {list(exact.shape)}"
                )
            floor = float(row_errors(rows.noisy[part], exact).max())
            bound = min(MAX_BOUND, FLOOR_FACTOR * floor + STEP_FACTOR * HALF_STEP[self.request.dtype])
            errors = row_errors(found[part], exact)
            self.bounds[rows.layer, part] = bound
            self.worst[rows.layer, part] = float(errors[held].max())
            self.wrong[rows.layer, part] = (errors > bound) & held

    @property
    def num_wrong(self) -> int:
        """Rows that nothing explains yet."""
        return sum(int(mask.sum()) for mask in self.wrong.values())

    def explained(self, expected: Expected) -> dict[tuple[int, str], Tensor]:
        """The wrong rows that are right under an explanation, by layer and part; only those with any."""
        result = {}
        for (layer, part), mask in self.wrong.items():
            wanted = expected(self, layer, part) if mask.any() else None
            if wanted is None or wanted.shape != self.found[layer][part].shape:
                continue
            fits = mask & (row_errors(self.found[layer][part], wanted) <= self.bounds[layer, part])
            if fits.any():
                result[layer, part] = fits
        return result

    def fits(self, layer: int, part: str, token: int, wanted: Tensor) -> bool:
        """Whether the row that was found for a token is `wanted` [heads, lanes], up to the bound."""
        error = row_errors(self.found[layer][part][token, None], wanted[None])
        return bool(error[0] <= self.bounds[layer, part])

    def take(self, rows: dict[tuple[int, str], Tensor]) -> None:
        """These rows are explained."""
        for key, mask in rows.items():
            self.wrong[key] = self.wrong[key] & ~mask


def row_errors(found: Tensor, wanted: Tensor) -> Tensor:
    """[tokens] relative distance of rows; infinite where a number is not."""
    gap = (found - wanted).flatten(1).norm(dim=1) / wanted.flatten(1).norm(dim=1).clamp_min(TINY)
    return gap.nan_to_num(torch.inf, torch.inf)

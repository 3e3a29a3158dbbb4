"""AWQ: scale is moved to the inputs that matter, then everything is rounded to nearest.

Folds and their search: fold_finder.py, scale_search.py. Every fold is checked to leave the layer's function as it was,
for all consumers of the norm, before anything is rounded. What is rounded then gets the grid with the least squared
error under the mean squares of its inputs, and linears on the residual path are compensated in size (compensation.py).

Paper: Lin et al. 2023, arXiv:2306.00978.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from degarble_engine.quantize.clip_search import search_grid
from degarble_engine.quantize.compensation import compensated_grid
from degarble_engine.quantize.interface import MatrixTask, Method, Rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Awq(Method):
    """`--method awq`."""

    name: ClassVar[str] = "awq"
    needs_inputs: ClassVar[bool] = True
    moves_scale: ClassVar[bool] = True
    compensates: bool = True

    def round(self, task: MatrixTask) -> Rounded:
        """See Method.round."""
        statistics = task.statistics
        if statistics is None or not statistics.tokens:
            grid = search_grid(task.weight, task.scheme, task.scale_dtype)
            return Rounded.to_nearest(task.weight, grid, ["no token reached it: rounded to nearest"])
        gram = statistics.gram / statistics.tokens
        grid = search_grid(task.weight, task.scheme, task.scale_dtype, statistics.importance)
        codes = grid.encode(grid.round_all(task.weight))
        before = grid.decode(codes)
        if self.compensates and task.is_on_residual:
            grid = compensated_grid(task.weight, gram, grid, before, task.scale_dtype)
        values = grid.decode(codes)
        losses = [(((one - task.weight) @ gram) * (one - task.weight)).sum(1) for one in (values, before)]
        norms = ((task.weight @ gram) * task.weight).sum(1)
        return Rounded(values=values, grid=grid, losses=losses[0], plain_losses=losses[1], norms=norms)

"""Round to nearest, on a grid whose ends were searched for the least squared error (clip_search.py).

No calibration text: what every other method is measured against. Paper of the search: Choukroun et al. 2019,
arXiv:1902.06822.
"""

from __future__ import annotations

from typing import ClassVar

from degarble_engine.quantize.clip_search import search_grid
from degarble_engine.quantize.interface import MatrixTask, Method, Rounded


class RoundToNearest(Method):
    """`--method rtn`."""

    name: ClassVar[str] = "rtn"
    needs_inputs: ClassVar[bool] = False

    def round(self, task: MatrixTask) -> Rounded:
        """See Method.round."""
        grid = search_grid(task.weight, task.scheme, task.scale_dtype)
        return Rounded.to_nearest(task.weight, grid)

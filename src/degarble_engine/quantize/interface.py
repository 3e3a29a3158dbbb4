"""What a method is: it gets a matrix, what is known of its inputs, and a form; it gives values that the form can hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from degarble_engine.quantize.grid import Grid
from degarble_engine.quantize.input_statistics import InputStatistics
from degarble_engine.quantize.scheme import QuantScheme


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTask:
    """One matrix, or the rows of several that read the same input."""

    weight: Tensor  # [out, in] fp32
    scheme: QuantScheme
    scale_dtype: torch.dtype
    statistics: InputStatistics | None = None
    """None where nothing is known of the inputs: an expert that no token reached, or a method that needs none."""
    is_on_residual: bool = False
    """Whether the output is added to the residual stream: o_proj, down_proj."""


@dataclass(slots=True, kw_only=True)
class Rounded:
    """What a method made of a matrix."""

    values: Tensor  # [out, in] fp32, on the grid
    grid: Grid
    losses: Tensor  # [out] what is left of the error of each row, in the method's own measure
    plain_losses: Tensor  # [out] the same of rounding to nearest on the first grid
    norms: Tensor  # [out] the same measure of the row itself
    notes: list[str] = field(default_factory=list)
    """What a reader of the report should know: more damping, too few tokens."""
    largest_input: float = 0.0
    """Size of the largest number that calibration fed it; 0 where there was none."""

    @classmethod
    def to_nearest(cls, weight: Tensor, grid: Grid, notes: list[str] | None = None) -> Rounded:
        """Plain rounding, measured in weights."""
        values = grid.round_all(weight)
        losses = (values - weight).square().sum(1)
        return cls(
            values=values,
            grid=grid,
            losses=losses,
            plain_losses=losses,
            norms=weight.square().sum(1),
            notes=list(notes or ()),
        )

    def of_rows(self, start: int, stop: int) -> Rounded:
        """The part of one linear."""
        rows = slice(start, stop)
        return Rounded(
            values=self.values[rows],
            grid=self.grid.of_rows(start, stop),
            losses=self.losses[rows],
            plain_losses=self.plain_losses[rows],
            norms=self.norms[rows],
            notes=list(self.notes),
            largest_input=self.largest_input,
        )


class Method(ABC):
    """One algorithm. It is found by walking the package `methods`."""

    name: ClassVar[str]
    needs_inputs: ClassVar[bool]
    """Whether calibration text is run."""
    orders_columns: ClassVar[bool] = False
    """Whether columns are taken in another order than theirs, which a config tells (static groups: no g_idx)."""

    moves_scale: ClassVar[bool] = False
    """Whether scale is moved between weights of a layer first (folds)."""

    @abstractmethod
    def round(self, task: MatrixTask) -> Rounded:
        """Choose values. Deterministic; leaves the task's tensors as they are."""

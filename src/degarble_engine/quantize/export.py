"""What an export is: the stored tensors of one matrix, and the config that tells engines how to read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from degarble.checkpoint.tensor_data import Array
from degarble_engine.quantize.grid import Grid
from degarble_engine.quantize.scheme import QuantScheme


class Export(ABC):
    """One layout. It is found by walking the package `exports`."""

    name: ClassVar[str]
    least_zero: ClassVar[int] = 0
    """The smallest zero point of an asymmetric group that all readers of the layout get right."""
    multiplies: ClassVar[bool] = False
    """Whether a global scale multiplies; else it divides."""
    holds_several: ClassVar[bool] = False
    """Whether modules may have schemes of their own."""

    @abstractmethod
    def refuses(self, scheme: QuantScheme) -> str | None:
        """Why the layout cannot hold a scheme; None if it can."""

    def refuses_shape(self, scheme: QuantScheme, out_features: int, in_features: int) -> str | None:
        """Why the layout cannot hold one matrix; None if it can."""
        size = scheme.group_size
        if size is not None and in_features % size:
            fitting = [one for one in (128, 96, 64, 48, 32, 16) if in_features % one == 0]
            return f"{in_features} inputs are no multiple of groups of {size}" + (
                f" (of {', '.join(map(str, fitting))} they are)" if fitting else ""
            )
        return None

    def scale_dtype(self, scheme: QuantScheme, model_dtype: torch.dtype) -> torch.dtype:
        """The dtype in which scales will be stored."""
        return model_dtype

    @abstractmethod
    def tensors(self, grid: Grid, codes: Array, scheme: QuantScheme, dtype: torch.dtype) -> Mapping[str, Array]:
        """Suffix -> array, for codes uint8 [out, in]; `dtype` is that of scales."""

    def input_tensors(self, scheme: QuantScheme, largest: float) -> Mapping[str, Array]:
        """Suffix -> array of what calibration found of the inputs, for a static scheme."""
        raise NotImplementedError(f"{self.name} holds no static scheme")

    def files(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """JSON files that lie beside config.json and say the same: name -> value."""
        return {}

    @abstractmethod
    def config(
        self, scheme: QuantScheme, ignore: Sequence[str], act_order: bool, others: Mapping[QuantScheme, Sequence[str]]
    ) -> dict[str, Any]:
        """The value of `quantization_config`. `ignore`: full names of linears that stay plain; `others`: of those that have
        another scheme than the usual one."""


def weight_only(scheme: QuantScheme, widths: Sequence[int]) -> str | None:
    """Why a layout of integers in groups, without quantised activations, cannot hold a scheme; None if it can."""
    if scheme.type != "int" or scheme.activation_bits is not None:
        return "it has integer weights only, and activations as they are"
    if scheme.num_bits not in widths:
        return f"it has {' or '.join(map(str, widths))} bits, not {scheme.num_bits}"
    return None

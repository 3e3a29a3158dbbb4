"""DeepSeek's block FP8: weight E4M3 and weight_scale_inv fp32, one for 128 x 128 weights. Despite its name it multiplies.

Source: DeepSeek-V3 `README_WEIGHTS.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import ml_dtypes
import torch

from degarble.checkpoint.tensor_data import Array
from degarble_engine.quantize.export import Export
from degarble_engine.quantize.grid import Grid
from degarble_engine.quantize.scheme import QuantScheme


class Fp8Export(Export):
    """`--export fp8`."""

    name: ClassVar[str] = "fp8"

    def refuses(self, scheme: QuantScheme) -> str | None:
        """See Export.refuses."""
        return None if scheme.name == "FP8_BLOCK" else "the layout is FP8_BLOCK's"

    def scale_dtype(self, scheme: QuantScheme, model_dtype: torch.dtype) -> torch.dtype:
        """See Export.scale_dtype."""
        return torch.float32

    def tensors(self, grid: Grid, codes: Array, scheme: QuantScheme, dtype: torch.dtype) -> Mapping[str, Array]:
        """See Export.tensors."""
        return {"weight": codes.view(ml_dtypes.float8_e4m3fn), "weight_scale_inv": grid.scales.numpy()}

    def config(
        self, scheme: QuantScheme, ignore: Sequence[str], act_order: bool, others: Mapping[QuantScheme, Sequence[str]]
    ) -> dict[str, Any]:
        """See Export.config."""
        return {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": list(scheme.block_shape or ()),
            "modules_to_not_convert": list(ignore),
        }

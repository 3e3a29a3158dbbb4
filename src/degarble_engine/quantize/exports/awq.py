"""AWQ's GEMM layout: qweight [in, out / 8], qzeros, scales; 4 bits, outputs of a word in AutoAWQ's order.

Scales as in the GPTQ layout: fp16, of numbers that bf16 holds as well where the model is in bf16. Symmetric groups are
stored with their zero point in the middle, since the layout has no form without zero points that every engine reads.
Source: AutoAWQ `modules/linear/gemm.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from degarble.checkpoint.tensor_data import Array
from degarble.formats.awq import pack
from degarble_engine.quantize.export import Export, weight_only
from degarble_engine.quantize.grid import Grid, IntGrid
from degarble_engine.quantize.scheme import QuantScheme

PACKED = 8


class AwqExport(Export):
    """`--export awq`."""

    name: ClassVar[str] = "awq"

    def refuses(self, scheme: QuantScheme) -> str | None:
        """See Export.refuses."""
        return weight_only(scheme, (4,))

    def refuses_shape(self, scheme: QuantScheme, out_features: int, in_features: int) -> str | None:
        """See Export.refuses_shape."""
        if out_features % PACKED:
            return f"{out_features} outputs fill no whole words of {PACKED}"
        return super().refuses_shape(scheme, out_features, in_features)

    def scale_dtype(self, scheme: QuantScheme, model_dtype: torch.dtype) -> torch.dtype:
        """See Export.scale_dtype. Stored in fp16 whatever the model has; fp32 ones are rounded to it first."""
        return torch.float16 if model_dtype == torch.float32 else model_dtype

    def tensors(self, grid: Grid, codes: Array, scheme: QuantScheme, dtype: torch.dtype) -> Mapping[str, Array]:
        """See Export.tensors."""
        assert isinstance(grid, IntGrid)
        return {
            "qweight": pack(np.ascontiguousarray(codes.T)),
            "qzeros": pack(np.ascontiguousarray(grid.zeros.numpy().astype(np.uint8).T)),
            "scales": np.ascontiguousarray(grid.scales.numpy().T).astype(np.float16),
        }

    def config(
        self, scheme: QuantScheme, ignore: Sequence[str], act_order: bool, others: Mapping[QuantScheme, Sequence[str]]
    ) -> dict[str, Any]:
        """See Export.config. The head is outside the blocks that the method converts."""
        plain = [name for name in ignore if name != "lm_head"]
        return {
            "quant_method": "awq",
            "bits": 4,
            "group_size": scheme.group_size,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": plain or None,
        }

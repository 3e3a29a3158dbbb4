"""GPTQ v1, the layout of AutoGPTQ and GPTQModel: qweight, qzeros, scales, g_idx.

Zero points are stored minus one, and readers add it back without masking: a zero point of 0 is stored as 15 and read as
16 by some, so none is ever chosen. Scales are kept in fp16, and readers cast them to the model's dtype before they
multiply: they are rounded to bf16 first for a model in bf16, which both dtypes hold exactly. Groups are static, so g_idx
is i // group_size and `desc_act` false, whatever the order in which columns were rounded.
Source: AutoGPTQ `qlinear_cuda_old.py`, GPTQModel `nn_modules/qlinear`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from degarble.checkpoint.tensor_data import Array
from degarble.formats.affine import group_of
from degarble.formats.gptq import pack, pack_zeros
from degarble_engine.quantize.export import Export, weight_only
from degarble_engine.quantize.grid import Grid, IntGrid
from degarble_engine.quantize.scheme import QuantScheme

WIDTHS = (2, 3, 4, 8)
WORD = 32


class GptqExport(Export):
    """`--export gptq`."""

    name: ClassVar[str] = "gptq"
    holds_several: ClassVar[bool] = True
    least_zero: ClassVar[int] = 1

    def refuses(self, scheme: QuantScheme) -> str | None:
        """See Export.refuses."""
        return weight_only(scheme, WIDTHS)

    def refuses_shape(self, scheme: QuantScheme, out_features: int, in_features: int) -> str | None:
        """See Export.refuses_shape. Codes fill words along the inputs, zero points along the outputs."""
        for what, size in (("outputs", out_features), ("inputs", in_features)):
            if size * scheme.num_bits % WORD:
                return f"{size} {what} of {scheme.num_bits} bits fill no whole words of {WORD} bits"
        return super().refuses_shape(scheme, out_features, in_features)

    def scale_dtype(self, scheme: QuantScheme, model_dtype: torch.dtype) -> torch.dtype:
        """See Export.scale_dtype. Stored in fp16 whatever the model has; fp32 ones are rounded to it first."""
        return torch.float16 if model_dtype == torch.float32 else model_dtype

    def tensors(self, grid: Grid, codes: Array, scheme: QuantScheme, dtype: torch.dtype) -> Mapping[str, Array]:
        """See Export.tensors."""
        assert isinstance(grid, IntGrid)
        return {
            "qweight": pack(codes, scheme.num_bits),
            "qzeros": pack_zeros(grid.zeros.numpy().astype(np.int32), scheme.num_bits),
            "scales": np.ascontiguousarray(grid.scales.numpy().T).astype(np.float16),
            "g_idx": group_of(codes.shape[1], scheme.group_size),
        }

    def config(
        self, scheme: QuantScheme, ignore: Sequence[str], act_order: bool, others: Mapping[QuantScheme, Sequence[str]]
    ) -> dict[str, Any]:
        """See Export.config. GPTQModel and vLLM leave modules alone by `dynamic`, with `-:` before a pattern."""
        head = {"lm_head"}
        dynamic: dict[str, Any] = {f"-:{_pattern(name)}": {} for name in ignore if name not in head}
        for other, names in others.items():
            own = {"bits": other.num_bits, "group_size": other.group_size, "sym": other.symmetric}
            dynamic |= {f"+:{_pattern(name)}": own for name in names}
        return {
            "quant_method": "gptq",
            "bits": scheme.num_bits,
            "group_size": scheme.group_size,
            "sym": scheme.symmetric,
            "desc_act": False,
            "static_groups": act_order,
            "checkpoint_format": "gptq",
            "pack_dtype": "int32",
            "lm_head": False,
            **({"dynamic": dynamic} if dynamic else {}),
        }


def _pattern(name: str) -> str:
    return f"^{name.replace('.', chr(92) + '.')}$"

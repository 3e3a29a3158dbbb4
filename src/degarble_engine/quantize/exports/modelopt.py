"""ModelOpt's layout: FP8 with one scale a matrix, NVFP4; scales of inputs are static. All global scales multiply.

    FP8      weight E4M3, weight_scale [], input_scale []
    NVFP4    weight uint8 (two codes), weight_scale E4M3 [out, in / 16], weight_scale_2 [], input_scale []

`config.json` and `hf_quant_config.json` say the same; engines read either. Source: ModelOpt `export/quant_utils.py`, and
the golden checkpoints of the tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import torch

from degarble.checkpoint.tensor_data import Array
from degarble.formats import e2m1
from degarble.version import __version__
from degarble_engine.quantize.export import Export
from degarble_engine.quantize.fp4_grid import E2M1_MAX, Fp4Grid
from degarble_engine.quantize.grid import E4M3_MAX, Grid
from degarble_engine.quantize.scheme import QuantScheme

ALGORITHMS = {"FP8_STATIC": "FP8", "NVFP4": "NVFP4"}
BESIDE = "hf_quant_config.json"


class ModelOpt(Export):
    """`--export modelopt`."""

    name: ClassVar[str] = "modelopt"
    multiplies: ClassVar[bool] = True

    def refuses(self, scheme: QuantScheme) -> str | None:
        """See Export.refuses."""
        return None if scheme.name in ALGORITHMS else f"it has {' and '.join(ALGORITHMS)}"

    def scale_dtype(self, scheme: QuantScheme, model_dtype: torch.dtype) -> torch.dtype:
        """See Export.scale_dtype."""
        return torch.float32

    def tensors(self, grid: Grid, codes: Array, scheme: QuantScheme, dtype: torch.dtype) -> Mapping[str, Array]:
        """See Export.tensors."""
        if isinstance(grid, Fp4Grid):
            return {
                "weight": e2m1.pack(codes),
                "weight_scale": grid.stored.numpy().astype(ml_dtypes.float8_e4m3fn),
                "weight_scale_2": np.array(grid.global_scale, np.float32),
            }
        scale = np.array(grid.scales.numpy().reshape(()), np.float32)
        return {"weight": codes.view(ml_dtypes.float8_e4m3fn), "weight_scale": scale}

    def input_tensors(self, scheme: QuantScheme, largest: float) -> Mapping[str, Array]:
        """See Export.input_tensors."""
        whole = E4M3_MAX * (E2M1_MAX if scheme.num_bits == 4 else 1.0)
        return {"input_scale": np.array((largest or 1.0) / whole, np.float32)}

    def config(
        self, scheme: QuantScheme, ignore: Sequence[str], act_order: bool, others: Mapping[QuantScheme, Sequence[str]]
    ) -> dict[str, Any]:
        """See Export.config."""
        form = {"dynamic": False, "num_bits": scheme.num_bits, "type": "float"}
        if scheme.group_size is not None:
            form["group_size"] = scheme.group_size
        return {
            "config_groups": {"group_0": {"input_activations": form, "weights": dict(form), "targets": ["Linear"]}},
            "ignore": list(ignore),
            "quant_algo": ALGORITHMS[scheme.name],
            "producer": {"name": "degarble", "version": __version__},
            "quant_method": "modelopt",
        }

    def files(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """See Export.files."""
        size = config["config_groups"]["group_0"]["weights"].get("group_size")
        quantization = {
            "quant_algo": config["quant_algo"],
            "kv_cache_quant_algo": None,
            **({"group_size": size} if size else {}),
            "exclude_modules": list(config["ignore"]),
        }
        return {BESIDE: {"producer": config["producer"], "quantization": quantization}}

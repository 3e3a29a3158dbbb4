"""No rule of this folder crashes on a config of foreign types or on odd headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.target import open_target

RULES = [f"QNT1{number:02}" for number in (1, 2, 3, 9, 10, 11, 14, 15, 17, 19, 20)]
ODD: tuple[Any, ...] = (None, True, -1, 10**30, 0.5, "", "static", [], [None, 7, ["x"]], {}, {"": {"dynamic": "no"}})
KEYS = (
    "activation_scheme",
    "config_groups",
    "ignore",
    "modules_to_not_convert",
    "dynamic",
    "kv_cache_scheme",
    "quant_method",
    "quantization",
    "include_input_output_embeddings",
    "quant_algo",
    "weight_block_size",
)
PATIENTS = (
    "llm-compressor-fp8-static-kvcache",
    "modelopt-fp8",
    "own-deepseek-fp8-block-576",
    "gptqmodel-gptq-sym-g128",
    "moe-deepseekv3-llmc-w4a16-g64",
)


@pytest.mark.parametrize("name", PATIENTS)
@pytest.mark.parametrize("key", KEYS)
def test_foreign_types(golden: Path, name: str, key: str) -> None:
    for value in ODD:
        workspace = Workspace(open_target(golden / name))
        workspace.json("config.json")["quantization_config"][key] = value
        report = check_source(workspace.source(), chosen=RULES)
        assert report.summary["crashed"] == 0, (value, [r.reason for r in report.results if r.outcome == "crashed"])


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 5), (3, 0), (2, 3, 4), (1, 1, 1, 1, 1)])
def test_odd_shapes(golden: Path, shape: tuple[int, ...]) -> None:
    for name in PATIENTS:
        source = open_target(golden / name)
        for dtype in (np.float32, np.uint8):
            workspace = Workspace(source)
            for tensor in list(workspace.shard("model.safetensors").tensors)[::3]:
                workspace.set(tensor, np.zeros(shape, dtype))
            for module in ("lm_head", "model.layers.0.mlp.gate", "model.layers.0.mlp.experts.0.up_proj"):
                workspace.add("model.safetensors", f"{module}.weight", np.zeros(shape, dtype))
            report = check_source(workspace.source(), chosen=RULES)
            assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]

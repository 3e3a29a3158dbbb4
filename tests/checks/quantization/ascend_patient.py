"""A healthy W8A8 checkpoint as ModelSlim writes it, made of a golden one with int8 weights."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.target import open_target

SHARD = "model.safetensors"
DESCRIPTION = "quant_model_description.json"
GOLDEN = "llm-compressor-w8a8-int8"


def ascend_w8a8(golden: Path, out: Path, *, as_bits: bool = False) -> Path:
    """Static W8A8 with every companion; `as_bits`: products as int64, as for models in fp16."""
    source = open_target(golden / GOLDEN)
    workspace = Workspace(source)
    modules = Evidence(source, Settings()).get("modules")
    del workspace.json("config.json")["quantization_config"]
    kinds = {"model_quant_type": "W8A8", "version": "1.0.0"}
    for number, (name, module) in enumerate(modules.items()):
        if not module.form.is_quantized:
            kinds |= {info.name: "FLOAT" for info in module.parts.values()}
            continue
        scale = module.array("scale").astype(ml_dtypes.bfloat16).reshape(-1, 1)
        step = np.array([0.01 + 0.003 * number], np.float32)
        product = (scale.astype(np.float32) * step).reshape(-1)
        arrays = {
            "weight_scale": scale,
            "weight_offset": np.zeros_like(scale),
            "input_scale": step,
            "input_offset": np.array([3], np.float32),
            "deq_scale": product.view(np.int32).astype(np.int64) if as_bits else product,
            "quant_bias": -3 * module.codes().astype(np.int32).sum(axis=1, dtype=np.int32),
        }
        for suffix, array in arrays.items():
            workspace.set(f"{name}.{suffix}", array) if suffix in module.parts else workspace.add(
                SHARD, f"{name}.{suffix}", array
            )
        kinds |= {f"{name}.{suffix}": "W8A8" for suffix in ("weight", *arrays)}
    workspace.json(DESCRIPTION).update(kinds)
    workspace.save(out)
    return out

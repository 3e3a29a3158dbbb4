"""An engine that writes dumps: transformers' model in bf16, its projections fused and its residual kept apart, as engines do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from tests.degarble_engine.tiny_models import SEQUENCES, folder

Values = dict[str, Tensor]
"""`model.layers.0.mlp.down_proj.output` and the like -> [tokens, features]."""


@contextmanager
def noting(model: nn.Module, values: Values) -> Iterator[None]:
    """Every module's first input and output."""
    handles = []
    for name, module in model.named_modules():
        if not name or name.endswith("rotary_emb"):
            continue

        def note(_: nn.Module, args: Any, kwargs: Any, output: Any, name: str = name) -> None:
            given = args[0] if args else kwargs.get("hidden_states")
            given_out = output[0] if isinstance(output, tuple) else output
            for role, one in (("input", given), ("output", given_out)):
                if isinstance(one, Tensor):
                    values[f"{name}.{role}"] = one.detach().flatten(0, 1)

        handles.append(module.register_forward_hook(note, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def activations(
    family: str = "llama", spoil: Callable[[nn.Module], None] | None = None, dtype: torch.dtype = torch.bfloat16
) -> Values:
    """Of the first of the tiny sequences."""
    model = AutoModelForCausalLM.from_pretrained(folder(family), dtype=dtype, attn_implementation="eager").eval()
    if spoil is not None:
        spoil(model)
    values: Values = {}
    ids = torch.tensor([SEQUENCES[0]])
    with torch.no_grad(), noting(model, values):
        model(input_ids=ids, use_cache=False)
    values["input_ids"] = ids[0]
    values["positions"] = torch.arange(ids.shape[1])
    return values


def fused(values: Values) -> Values:
    """q, k, v and gate, up side by side, as vLLM and SGLang have them."""
    found = dict(values)
    for name in list(values):
        if name.endswith("q_proj.output"):
            parts = [found.pop(name.replace("q_proj", leaf)) for leaf in ("q_proj", "k_proj", "v_proj")]
            found[name.replace("q_proj", "qkv_proj")] = torch.cat(parts, 1)
            given = [
                found.pop(name.replace("q_proj.output", f"{leaf}.input")) for leaf in ("q_proj", "k_proj", "v_proj")
            ]
            found[name.replace("q_proj.output", "qkv_proj.input")] = given[0]
        if name.endswith("gate_proj.output"):
            parts = [found.pop(name.replace("gate_proj", leaf)) for leaf in ("gate_proj", "up_proj")]
            found[name.replace("gate_proj", "gate_up_proj")] = torch.cat(parts, 1)
            given = [found.pop(name.replace("gate_proj.output", f"{leaf}.input")) for leaf in ("gate_proj", "up_proj")]
            found[name.replace("gate_proj.output", "gate_up_proj.input")] = given[0]
    return found


def with_residual(values: Values) -> Values:
    """A layer's output as hidden state and residual."""
    found = dict(values)
    for name in list(values):
        owner, _, number = name.removesuffix(".output").rpartition(".")
        if owner == "model.layers" and number.isdigit() and name.endswith(".output"):
            residual = values[name] * 0.75
            found[f"{name}.0"], found[f"{name}.1"] = found.pop(name) - residual, residual
    return found


def write_sglang(values: Values, out: Path, rank: int = 0) -> Path:
    """As its dumper names files."""
    run = out / "dump_20260101_000000"
    run.mkdir(parents=True, exist_ok=True)
    for index, (name, value) in enumerate(values.items()):
        told = f"{name.removesuffix('.input')}.inputs.0" if name.endswith(".input") else name
        given = name if name in ("input_ids", "positions") else f"non_intrusive__{told}"
        tags = {"step": 0, "rank": rank, "dump_index": index, "name": given, "recompute_status": "disabled"}
        file = "___".join(f"{key}={one}" for key, one in tags.items()) + ".pt"
        torch.save({"value": value.clone(), "meta": tags}, run / file)
    return out


def write_msprobe(values: Values, out: Path) -> Path:
    """Level L0 of one step and rank."""
    place = out / "step0" / "rank0"
    (place / "dump_tensor_data").mkdir(parents=True)
    data: dict[str, Any] = {}
    for name, value in values.items():
        if name in ("input_ids", "positions"):
            continue
        module, _, role = name.rpartition(".")
        entry = data.setdefault(
            f"Module.{module}.SomeLayer.forward.0", {"input_args": [], "input_kwargs": {}, "output": []}
        )
        data_name = f"Module.{module}.SomeLayer.forward.0.{role}.0.pt"
        torch.save(value.clone(), place / "dump_tensor_data" / data_name)
        one = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape), "data_name": data_name}
        entry["output" if role == "output" else "input_args"].append(one)
    document = {"task": "tensor", "level": "L0", "framework": "pytorch", "dump_data_dir": "/elsewhere", "data": data}
    (place / "dump.json").write_text(json.dumps(document))
    return out


def write_npy(values: Values, out: Path) -> Path:
    """One file a tensor, in float32: bf16 has no .npy form."""
    out.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        array = value.float().numpy() if value.is_floating_point() else value.numpy()
        np.save(out / f"{name}.npy", array)
    return out


def write_safetensors(values: Values, out: Path) -> Path:
    """All in one file."""
    out.mkdir(parents=True, exist_ok=True)
    save_file({name: value.clone().contiguous() for name, value in values.items()}, out / "dump.safetensors")
    return out

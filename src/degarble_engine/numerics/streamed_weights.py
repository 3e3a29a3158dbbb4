"""Weights by transformers' parameter names, read through `degarble.formats` when they are asked for and not before.

    parameter of the model                      where it lies
    …self_attn.q_proj.weight                    the module `…self_attn.q_proj`, dequantised whatever its format
    …mlp.experts.gate_up_proj  [E, 2 I, H]      gate_proj and up_proj (w1 and w3) of every expert, or stacked in GGUF
    …mlp.experts.down_proj     [E, H, I]        down_proj (w2) of every expert
    …self_attn.kv_b_proj.weight                 in newer GGUF files k_b (transposed) and v_b, head by head
    lm_head.weight                              the embedding where there is no head

GGUF differs in values, too: q and k of Llama models have their rotary rows in pairs, and norms of 1 + w families are
stored with the 1 added (llama.cpp convert_hf_to_gguf.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.errors import DegarbleError, TargetError
from degarble.evidence import Evidence
from degarble.evidence.block_look import rotary_rows
from degarble.evidence.model import ModelConfig
from degarble.evidence.modules import Modules
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.formats.slicing import can_slice, stack_outputs
from degarble.profile.code_groups import values_of

PAIRED_ROTARY = frozenset({"llama", "granite", "granitemoe", "smollm3", "arcee", "deci"})
"""GGUF architectures whose converter permutes q and k. Source: llama.cpp convert_hf_to_gguf.py, `permute`."""
EXPERT_LEAVES = {"gate_up_proj": (("gate_proj", "w1"), ("up_proj", "w3")), "down_proj": (("down_proj", "w2"),)}
TRANSPOSED_FORMATS = frozenset({"mxfp4_experts"})
"""Stored [experts, out, in] where transformers' parameter is [experts, in, out]."""
JOINT, BY_HEAD = "kv_b_proj", ("k_b_proj", "v_b_proj")
PRE_SCALE = "pre_quant_scale"
UNREADABLE = (ValueError, KeyError, IndexError, NotImplementedError, DegarbleError)


class StreamedWeights:
    """All weights of one checkpoint, none of them in memory."""

    def __init__(self, evidence: Evidence) -> None:
        self.modules: Modules = evidence.get("modules")
        config: ModelConfig = evidence.get("model_config")
        self.config = config
        self.is_gguf = bool(evidence.get("is_gguf"))
        self.raw_read: dict[str, str] = {}
        """Modules without their scale, read raw as loaders do; with the part that is missing."""
        architecture = config.gguf.architecture if config.gguf is not None else None
        self._is_paired = self.is_gguf and (architecture or "llama") in PAIRED_ROTARY
        self._adds_one = self.is_gguf and _adds_one(config)

    def module_of(self, name: str) -> StoredModule | None:
        """The stored module behind a parameter that lies in one piece."""
        for spelling in _spellings(name):
            owner, _, leaf = spelling.rpartition(".")
            for candidate in (owner if leaf in ("weight", "bias") else "", spelling, spelling.removesuffix("_bias")):
                found = self.modules.by_canonical.get(candidate)
                if found is not None:
                    return found
        return None

    def stored(self, name: str) -> Iterator[StoredModule]:
        """All stored modules that make up a parameter."""
        one = self.module_of(name)
        if one is not None:
            yield one
            return
        yield from self._by_head(name)
        for _, pieces in self._expert_pieces(name):
            yield from pieces

    def _by_head(self, name: str) -> list[StoredModule]:
        """k_b and v_b, into which llama.cpp's converter splits a kv_b_proj since April 2025; empty where they are not."""
        owner = name.removesuffix(f"{JOINT}.weight")
        found = [self.modules.by_canonical.get(f"{owner}{part}") for part in BY_HEAD] if owner != name else []
        return [one for one in found if one is not None] if None not in found else []

    def _joined_heads(self, parts: list[StoredModule]) -> Array:
        """[heads * (key part + value part), rank] of [heads, rank, key part] and [heads, value part, rank]."""
        keys, values = (self._values(part) for part in parts)
        joined = np.concatenate([np.swapaxes(keys, 1, 2), values], axis=1)
        return joined.reshape(-1, joined.shape[2])

    def stored_part(self, name: str, expert: int | None, part: str) -> StoredModule | None:
        """The stored module of one expert's part of a fused parameter; of the parameter, where no expert is asked for."""
        if expert is None:
            return self.module_of(name)
        leaf = part.rpartition(".")[2]
        for spelling, modules in self._expert_pieces(name):
            if spelling.rpartition(".")[2] in _same_leaf(leaf):
                return modules[expert] if expert < len(modules) else modules[0]
        return self.module_of(name)

    def expert_modules(self, name: str, expert: int) -> list[StoredModule]:
        """The stored modules of one expert's share of a fused parameter: gate and up, or down; or one that holds all experts."""
        pieces = [modules for _, modules in self._expert_pieces(name)]
        found = [modules[min(expert, len(modules) - 1)] for modules in pieces]
        one = None if found else self.module_of(name)
        return found if one is None else [one]

    def has(self, name: str) -> bool:
        """Whether the parameter can be read."""
        return next(self.stored(name), None) is not None

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The parameter in fp32. Raises TargetError with expected and found if there is none of that shape."""
        module = self.module_of(name)
        try:
            values = self._whole(module, name)
        except UNREADABLE as error:
            raise TargetError(f"{name}: the stored weight cannot be read: {error}") from None
        if values is None:
            raise TargetError(f"{name}: expected a tensor of shape {list(shape)}, found none in the checkpoint")
        if tuple(values.shape) != tuple(shape):
            raise TargetError(f"{name}: expected shape {list(shape)} by the config, found {list(values.shape)}")
        return torch.from_numpy(np.array(values, np.float32, copy=not values.flags.writeable or None, order="C"))

    def rows(self, name: str, ids: Array) -> Tensor:
        """Some rows of a matrix: of an embedding, whose whole would be larger than a layer."""
        module = self.module_of(name)
        if module is None:
            raise TargetError(f"{name}: found none in the checkpoint")
        try:
            return torch.from_numpy(_rows(module, ids))
        except UNREADABLE as error:
            raise TargetError(f"{name}: the stored weight cannot be read: {error}") from None

    def num_rows(self, name: str) -> int:
        """Rows of a matrix by its header."""
        module = self.module_of(name)
        shape = module.form.shape if module is not None else None
        if not shape:
            raise TargetError(f"{name}: found none in the checkpoint, or one whose shape its header does not tell")
        return shape[0]

    def _whole(self, module: StoredModule | None, name: str) -> Array | None:
        if module is not None:
            return self._piece(module, name)
        by_head = self._by_head(name)
        return self._joined_heads(by_head) if by_head else self._experts(name)

    def _piece(self, module: StoredModule, name: str) -> Array | None:
        if name.endswith(("_bias", ".bias")) and "bias" in module.form.roles:
            values = _array(module, "bias")
            return self._unpaired(name, values[:, None])[:, 0] if values.ndim == 1 else values
        if name.endswith(".bias") and module.payload is not None and module.canonical != name:
            return None
        values = self._values(module)
        if values.ndim == 1 and self._adds_one and module.kind == "norm":
            values = values - 1.0
        if module.form.format in TRANSPOSED_FORMATS:
            values = np.swapaxes(values, -1, -2)
        return self._unpaired(name, values) if values.ndim == 2 else values

    def _values(self, module: StoredModule) -> Array:
        if module.form.missing and module.payload is not None and module.payload.dtype.startswith("F8"):
            self.raw_read[module.name] = ", ".join(module.form.missing)
            return module.array(PAYLOAD).astype(np.float32)
        values = dequantized(module)
        if module.part(PRE_SCALE) is not None:
            values = values * module.array(PRE_SCALE).astype(np.float32).reshape(1, -1)
        return values

    def _unpaired(self, name: str, values: Array) -> Array:
        """Rows in halves, as transformers has them. One helper for weights and biases."""
        if not self._is_paired or not any(f".{leaf}." in name for leaf in ("q_proj", "k_proj")):
            return values
        text = self.config.text
        heads = int(text.get("num_attention_heads") or 1)
        count = int(text.get("num_key_value_heads") or heads) if ".k_proj." in name else heads
        return rotary_rows(values, values.shape[0] // count)

    def _expert_pieces(self, name: str) -> Iterator[tuple[str, list[StoredModule]]]:
        """For each part of a fused parameter: the part's name and its modules, one an expert or one for all."""
        owner, _, leaf = name.rpartition(".")
        if not owner.endswith("experts") or leaf not in EXPERT_LEAVES:
            return
        for spellings in EXPERT_LEAVES[leaf]:
            for spelling in (f"{place}.{one}" for place in _spellings(owner) for one in spellings):
                found = self._experts_named(spelling)
                if found:
                    yield spelling, found
                    break

    def _experts_named(self, spelling: str) -> list[StoredModule]:
        stacked = self.modules.by_canonical.get(spelling)
        if stacked is not None:
            return [stacked]
        owner, _, leaf = spelling.rpartition(".")
        found: list[StoredModule] = []
        while (one := self.modules.by_canonical.get(f"{owner}.{len(found)}.{leaf}")) is not None:
            found.append(one)
        return found

    def _experts(self, name: str) -> Array | None:
        parts = []
        for _, modules in self._expert_pieces(name):
            stacked = [self._values(module) for module in modules]
            parts.append(stacked[0] if stacked[0].ndim == 3 else np.stack(stacked))
        wanted = len(EXPERT_LEAVES.get(name.rpartition(".")[2], ()))
        return np.concatenate(parts, axis=1) if parts and len(parts) == wanted else None


def _same_leaf(leaf: str) -> tuple[str, ...]:
    return next((names for parts in EXPERT_LEAVES.values() for names in parts if leaf in names), (leaf,))


def _spellings(name: str) -> tuple[str, ...]:
    """A parameter under its name in transformers, and under those that files have."""
    if ".mlp." not in name:
        return (name,)
    return name, name.replace(".mlp.", ".block_sparse_moe."), name.replace(".mlp.", ".feed_forward.")


def _adds_one(config: ModelConfig) -> bool:
    from degarble.architectures.load import load_architecture

    values: Mapping[str, Any] = config.values
    try:
        architecture = load_architecture(values)
    except ValueError:
        return False
    return architecture is not None and architecture.norm_convention == "1+w"


def dequantized(module: StoredModule) -> Array:
    """fp32 values of any format, plain GGUF tensors included; matrices in groups twenty times as fast as one by one."""
    if module.form.format == "plain":
        return _array(module, PAYLOAD)
    is_matrix = module.form.shape is not None and len(module.form.shape) == 2
    return values_of(module) if is_matrix else module.dequantize()


def _array(module: StoredModule, role: str) -> Array:
    info = module.parts[module.form.roles[role]]
    dtype = DTYPES.get(info.dtype.removeprefix("GGUF:"))
    if dtype is None:
        raise ValueError(f"{info.name}: dtype {info.dtype} holds no plain values")
    return np.asarray(module.reader.raw(info).view(dtype).reshape(info.shape).astype(np.float32))


def _rows(module: StoredModule, ids: Array) -> Array:
    info = module.payload
    if info is None:
        raise ValueError(f"{module.name} has no values")
    if module.form.format == "plain":
        dtype = DTYPES[info.dtype.removeprefix("GGUF:")]
        return np.asarray(module.reader.raw(info).view(dtype).reshape(info.shape)[ids].astype(np.float32))
    if can_slice(module):
        runs = [(int(row), int(row) + 1) for row in ids]
        return np.asarray(stack_outputs([module], runs).dequantize(), np.float32)
    return np.asarray(module.dequantize()[ids], np.float32)

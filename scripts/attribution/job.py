"""A candidate in which something is planted: its modules, and their stored values without scales, both ways."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence
from degarble.formats.interface import StoredModule

LINEARS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
           "mlp.up_proj", "mlp.down_proj")  # fmt: skip
E4M3 = ml_dtypes.float8_e4m3fn

Expected = list[dict[str, Any]]
"""Places, each by the keys of a location; the first finding must meet one, all findings together all of them."""


@dataclass
class Job:
    """A candidate in which something is planted."""

    work: Workspace
    evidence: Evidence
    rng: random.Random

    def module(self, name: str) -> StoredModule:
        """By its canonical name."""
        found: StoredModule = self.evidence.get("modules").by_canonical[name]
        return found

    def linear(self, leaves: tuple[str, ...] = LINEARS) -> StoredModule:
        """Any of these, in any layer."""
        return self.module(f"model.layers.{self.rng.randrange(30)}.{self.rng.choice(leaves)}")

    def put(self, module: StoredModule, **parts: Array) -> Expected:
        """Write new codes, scales or zeros."""
        for tensor, array in module.replace(**parts).items():
            self.work.set(tensor, array)
        return [{"module": module.canonical}]


def units(module: StoredModule) -> Array:
    """Stored values without their scales."""
    codes = module.codes()
    scheme = module.form.scheme
    if scheme is None:
        return np.asarray(codes.astype(np.float32))
    if scheme.type == "float":
        return np.asarray(codes.view(E4M3).astype(np.float32))
    zeros, index = module.zeros(), module.group_index()
    offset = zeros[:, index] if zeros is not None and index is not None else 0
    return np.asarray(codes.astype(np.float32) - offset)


def encoded(module: StoredModule, values: Array) -> Array:
    """Undo `units`."""
    scheme = module.form.scheme
    if scheme is None:
        return values
    if scheme.type == "float":
        return values.clip(-448, 448).astype(E4M3).view(np.uint8)
    zeros, index = module.zeros(), module.group_index()
    offset = zeros[:, index] if zeros is not None and index is not None else 0
    top = (1 << (scheme.num_bits or 4)) - 1
    return np.clip(np.round(values + offset), 0, top).astype(module.codes().dtype)

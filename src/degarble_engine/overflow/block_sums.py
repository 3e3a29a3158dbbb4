"""What enters each linear, against what its stored form can take: a static activation scale, and fp16 block sums.

static scale s     codes end at 448 (E4M3) or 127: |x| > s * end is clipped
q8_1 blocks        32 inputs share d and s = d * sum(q), both fp16 (llama.cpp ggml-common.h:258-265); formats with
                   a minimum (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K) read s
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from degarble.errors import DegarbleError
from degarble.formats.interface import StoredModule
from degarble_engine.numerics.walked_model import WalkedModel

ENDS = {"F8_E4M3": 448.0, "F8_E5M2": 57344.0, "I8": 127.0}
INPUT_SCALE = "input_scale"
WITH_MINIMUM = ("q4_1", "q5_1", "q2_k", "q4_k", "q5_k")
BLOCK = 32


@dataclass(slots=True)
class SeenInput:
    """Of one linear."""

    module: StoredModule
    largest: float = 0.0
    num_values: int = 0
    num_clipped: int = 0
    reach: float | None = None
    """scale * largest code; None without a static scale."""
    block_sum: float | None = None
    """Largest |sum of 32 inputs|; None where no block sums are read."""


@dataclass(slots=True)
class InputObserver:
    """Watches the exact lane."""

    model: WalkedModel
    layer: int = 0
    seen: dict[str, SeenInput] = field(default_factory=dict)
    unjudged: dict[str, str] = field(default_factory=dict)

    def see(self, name: str, values: Tensor) -> None:
        """One input of one linear, named relative to the layer."""
        full = f"{self.model.skeleton.layer_name(self.layer)}.{name}"
        known = self.seen.get(full)
        if known is None:
            module = self.model.weights.module_of(f"{full}.weight")
            if module is None or not (self._has_scale(module) or _has_minimum(module)):
                return
            known = self.seen[full] = SeenInput(module, reach=self._reach(module))
        size = values.abs()
        known.largest = max(known.largest, float(size.max()))
        known.num_values += size.numel()
        if known.reach is not None:
            known.num_clipped += int((size > known.reach).sum())
        if _has_minimum(known.module) and values.shape[-1] % BLOCK == 0:
            sums = values.reshape(-1, BLOCK).sum(1).abs().max()
            known.block_sum = max(known.block_sum or 0.0, float(sums))

    def _has_scale(self, module: StoredModule) -> bool:
        return module.part(INPUT_SCALE) is not None

    def _reach(self, module: StoredModule) -> float | None:
        if not self._has_scale(module) or module.payload is None:
            return None
        end = ENDS.get(module.payload.dtype)
        if end is None:
            self.unjudged[module.name] = f"activation scale of a weight stored as {module.payload.dtype}"
            return None
        try:
            scale = torch.from_numpy(module.array(INPUT_SCALE).astype("float32")).abs()
        except (DegarbleError, ValueError, KeyError) as error:
            self.unjudged[module.name] = f"activation scale: {error}"
            return None
        return float(scale.max()) * end


def _has_minimum(module: StoredModule) -> bool:
    dtype = module.payload.dtype.lower() if module.payload is not None else ""
    return dtype.removeprefix("gguf:") in WITH_MINIMUM

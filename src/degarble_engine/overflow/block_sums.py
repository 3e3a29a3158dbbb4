"""What enters each linear, against what its stored form can take: a static activation scale, and fp16 block sums.

static scale s     codes end at 448 (E4M3) or 127: |x| > s * end is clipped
q8_1 blocks        32 inputs share d and s = d * sum(q), both fp16 (llama.cpp ggml-common.h:258-265); formats with
                   a minimum (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K) read s
"""

from __future__ import annotations

from collections.abc import Iterator
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
    _shown: set[str] = field(default_factory=set)

    def see(self, name: str, values: Tensor, expert: tuple[str, int] | None = None) -> None:
        """One input of one linear or expert, named relative to the layer."""
        full = f"{self.model.skeleton.layer_name(self.layer)}.{name}"
        if not values.numel():
            return
        for key, module, number in self._modules(full, expert):
            known = self.seen.get(key)
            if known is None:
                known = self.seen[key] = SeenInput(module, reach=self._reach(module, number))
            _count(known, values)

    def _modules(self, full: str, expert: tuple[str, int] | None) -> Iterator[tuple[str, StoredModule, int | None]]:
        """(key, stored module, number within it) of everything that reads this input and has something to be checked."""
        weights = self.model.weights
        if expert is None:
            one = weights.module_of(f"{full}.weight")
            found = [] if one is None else [one]
        else:
            found = weights.expert_modules(f"{full}.{expert[0]}", expert[1])
        for module in found:
            if self._is_checked(module):
                self._shown.add(module.name)
                number = expert[1] if expert is not None and module.expert is None else None
                yield module.name if number is None else f"{module.name}[{number}]", module, number

    def unseen(self) -> dict[str, str]:
        """What has a scale or block sums and got no input: experts that no token came to, or code that multiplies unseen."""
        lost = [one for one in self.model.weights.modules.linears()
                if one.layer is not None and one.layer < self.model.num_layers
                and one.name not in self._shown and self._is_checked(one)]  # fmt: skip
        if not lost:
            return {}
        return {"activation scales and block sums": f"{len(lost)} modules, {lost[0].name} first, got no input that could be "
                "seen (experts that no token came to, or a family that multiplies them another way): not checked"}  # fmt: skip

    def _is_checked(self, module: StoredModule) -> bool:
        return self._has_scale(module) or _has_minimum(module)

    def _has_scale(self, module: StoredModule) -> bool:
        return module.part(INPUT_SCALE) is not None

    def _reach(self, module: StoredModule, number: int | None) -> float | None:
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
        by_expert = scale.reshape(scale.shape[0], -1).amax(1) if scale.ndim else scale.reshape(1)
        if number is not None and number < len(by_expert):
            return float(by_expert[number]) * end
        return float(scale.max()) * end


def _count(known: SeenInput, values: Tensor) -> None:
    size = values.abs()
    known.largest = max(known.largest, float(size.max()))
    known.num_values += size.numel()
    if known.reach is not None:
        known.num_clipped += int((size > known.reach).sum())
    if _has_minimum(known.module) and values.shape[-1] % BLOCK == 0:
        sums = values.reshape(-1, BLOCK).sum(1).abs().max()
        known.block_sum = max(known.block_sum or 0.0, float(sums))


def _has_minimum(module: StoredModule) -> bool:
    dtype = module.payload.dtype.lower() if module.payload is not None else ""
    return dtype.removeprefix("gguf:") in WITH_MINIMUM

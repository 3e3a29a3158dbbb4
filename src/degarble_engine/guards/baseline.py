"""How large the outputs of the blocks are in this model when it is started: one short run before anything is served.

The run goes over plain tensors, not over the engine's cache, so that a fault of the cache is not learnt as normal. What
the *weights* had lost before the start is normal here; that is what `check` and the look at neighbouring layers are for:
a block below NUM306's share of its neighbours is named at the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

from degarble_engine.guards.block_tap import BlockTap
from degarble_engine.hooks import MAX_PEER_RATIO, NEIGHBOURS
from degarble_engine.models.causal_lm import CausalLM
from degarble_engine.models.plain_cache import PlainCache

NUM_TOKENS = 96
SKIPPED_ROWS = 4
"""The first tokens gather attention and have outputs a hundred times as large (Xiao et al., 2023)."""


class Baseline(msgspec.Struct, frozen=True):
    """Std of the outputs of each block."""

    names: tuple[str, ...]
    median: tuple[float, ...]
    least: tuple[float, ...]
    """The smallest of any token of the run."""

    @property
    def collapsed(self) -> list[str]:
        """Blocks that are far smaller than the same block of the layers around."""
        return [name for at, name in enumerate(self.names) if self._is_far_below(at)]

    def _is_far_below(self, at: int) -> bool:
        leaf = self.names[at].rpartition(".")[2]
        same = [one for one, name in enumerate(self.names) if name.rpartition(".")[2] == leaf]
        place = same.index(at)
        near = sorted(
            self.median[one] for one in same[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1] if one != at
        )
        return len(near) >= NEIGHBOURS and self.median[at] < MAX_PEER_RATIO * near[len(near) // 2]


@torch.inference_mode()
def measure(model: CausalLM, tap: BlockTap, token_ids: Sequence[int]) -> Baseline | None:
    """Run a text once. None if the taps are silent, or a number is not finite."""
    ids = list(token_ids)[:NUM_TOKENS]
    tap.open()
    model.hidden(torch.tensor(ids), torch.arange(len(ids)), PlainCache().begin([("baseline", len(ids))]))
    spread = tap.take()
    if spread is None or spread.shape[1] <= SKIPPED_ROWS or not bool(spread.isfinite().all()):
        return None
    kept: Tensor = spread[:, SKIPPED_ROWS:]
    return Baseline(tuple(tap.names), tuple(kept.median(1).values.tolist()), tuple(kept.amin(1).tolist()))

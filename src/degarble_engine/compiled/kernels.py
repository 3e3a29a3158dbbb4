"""The compiled loops, if they can be had."""

from __future__ import annotations

import logging
from functools import lru_cache
from types import ModuleType

import msgspec
import torch
from torch import Tensor

log = logging.getLogger(__name__)


class Kernels(msgspec.Struct, frozen=True):
    """Modules of compiled loops."""

    attention: ModuleType
    rows: ModuleType

    def use_threads(self) -> None:
        """As many as torch has; numba keeps the number by thread, so every user of parallel loops says it."""
        import numba

        numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))


@lru_cache(maxsize=1)
def kernels() -> Kernels | None:
    """None without numba, or with one that does not work with this numpy; the log says why."""
    try:
        from degarble_engine.compiled import paged_attention, rows
    except ImportError as error:
        log.info("loops of torch, not of numba: %s", error)
        return None
    return Kernels(paged_attention, rows)


def loops_for(tensor: Tensor) -> Kernels | None:
    """The compiled loops, for what they are made for: float32 in this machine's memory."""
    return kernels() if tensor.dtype == torch.float32 and tensor.device.type == "cpu" else None

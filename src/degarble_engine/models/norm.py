"""RMSNorm (Zhang and Sennrich, 2019), computed in fp32 and rounded before the gain, as transformers' families do."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from degarble_engine.compiled.kernels import loops_for


def rms_norm(hidden: Tensor, gain: Tensor, eps: float) -> Tensor:
    """[..., n] and [n] -> [..., n] in the dtype of `hidden`."""
    loops = loops_for(hidden)
    if loops is not None and gain.dtype == hidden.dtype:
        rows = hidden.contiguous()
        found = torch.empty_like(rows)
        loops.rows.norm(rows.numpy(), gain.numpy(), np.float32(eps), found.numpy())
        return found
    wide = hidden.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return gain * scaled.to(hidden.dtype)

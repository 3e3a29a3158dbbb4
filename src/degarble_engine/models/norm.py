"""RMSNorm (Zhang and Sennrich, 2019), computed in fp32 and rounded before the gain, as transformers' families do."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(hidden: Tensor, gain: Tensor, eps: float) -> Tensor:
    """[..., n] and [n] -> [..., n] in the dtype of `hidden`."""
    wide = hidden.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return gain * scaled.to(hidden.dtype)

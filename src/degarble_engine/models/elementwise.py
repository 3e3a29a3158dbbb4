"""exp, sigmoid and cosine whose bits do not depend on where a number stands.

torch computes a tensor in pairs of vector registers and what is left over number by number, with another routine whose
last bit may differ (aten/src/ATen/native/cpu/Loops.h). Rows whose length fills whole pairs have nothing left over; for
the others the tensor is filled up first.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

WHOLE = 64
"""Numbers in two of the widest registers at the narrowest dtype that is used here."""


def in_whole_vectors(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """`function` of every number; for small tensors, since the whole is copied."""
    flat = values.reshape(-1)
    return function(F.pad(flat, (0, -flat.numel() % WHOLE)))[: flat.numel()].view(values.shape)

"""Scales of any granularity spread over the weights, the ulp of floats, and the step that four bits would have.

GGUF's rows may be permuted and most of its types hide their scales: nothing here reads them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from degarble.checkpoint.tensor_data import Array
from degarble.errors import DegarbleError
from degarble.formats.interface import StoredModule

REFERENCE_GROUP, REFERENCE_LEVELS = 64, 15
PRE_SCALE = "pre_quant_scale"
UNREADABLE = (ValueError, KeyError, IndexError, NotImplementedError, DegarbleError)


def stored_scales(module: StoredModule, weight: Tensor) -> Tensor | None:
    """[out, in] the scale that every weight is stored with; None where granularity and shape do not fit."""
    scales = _expanded(module, tuple(weight.shape))
    if scales is not None and module.part(PRE_SCALE) is not None:
        scales = scales * torch.from_numpy(module.array(PRE_SCALE).astype(np.float32).reshape(1, -1)).abs()
    return scales


def ulps(values: Tensor, mantissa: int) -> Tensor:
    """Distance to the next number of a float format with so many bits behind the point."""
    _, exponents = torch.frexp(values)
    found = torch.ldexp(torch.ones_like(values), exponents - 1 - mantissa)
    return torch.where(values == 0, torch.zeros_like(found), found)


def reference_steps(weight: Tensor) -> Tensor:
    """[out, in] the step that rounding to four bits, asymmetric, in groups of 64, would have here."""
    size = REFERENCE_GROUP if weight.shape[-1] % REFERENCE_GROUP == 0 else weight.shape[-1]
    groups = weight.reshape(weight.shape[0], -1, size)
    steps = (groups.amax(-1).clamp_min(0) - groups.amin(-1).clamp_max(0)) / REFERENCE_LEVELS
    return steps.repeat_interleave(size, dim=1)


def _expanded(module: StoredModule, shape: tuple[int, ...]) -> Tensor | None:
    """Scales of any granularity as one number a weight."""
    scales = np.abs(np.asarray(module.scales(), np.float32))
    if scales.ndim != 2 or len(shape) != 2:
        return None
    out = shape[0]
    index = module.group_index() if scales.shape[1] > 1 and scales.shape[0] == out else None
    if index is not None:
        if int(np.max(index, initial=0)) >= scales.shape[1]:
            return None
        return torch.from_numpy(np.ascontiguousarray(scales[:, index]))
    block = module.form.scheme.block_shape if module.form.scheme is not None else None
    rows, columns = (_spread(n, have, b) for n, have, b in zip(shape, scales.shape, block or (0, 0), strict=True))
    if rows is None or columns is None:
        return None
    return torch.from_numpy(np.ascontiguousarray(scales[rows][:, columns]))


def _spread(size: int, have: int, block: int) -> Array | None:
    """Which of `have` scales each of `size` positions uses."""
    if have == 1:
        return np.zeros(size, np.int64)
    step = block or -(-size // have)
    index = np.arange(size) // step
    return index if int(index[-1]) == have - 1 else None

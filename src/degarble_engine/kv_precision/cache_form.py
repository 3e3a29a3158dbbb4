"""How a quantised cache rounds keys and values: a dtype, and which values share a scale.

    tensor    one scale for all tokens, heads and channels (the form that engines calibrate; 1.0 where they do not)
    head      one for each head
    channel   one for each head and channel, over all tokens (KIVI's form for keys)
    token     one for each head and token (KIVI's form for values)

fp8 is E4M3 with scale absmax / 448; int8 and int4 are asymmetric with the ends of the range as codes, the form of
arXiv 2402.02750 without its window of recent tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from degarble.errors import UsageError

AXES = {"tensor": (0, 1, 2, 3), "head": (0, 2, 3), "channel": (0, 2), "token": (3,)}
"""Of [batch, num_kv_heads, tokens, head_dim]: the axes that share a scale."""
BITS = {"int8": 8, "int4": 4}
E4M3_MAX = 448.0
TINY = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheForm:
    """One cache."""

    dtype: str
    key_axis: str
    value_axis: str

    @property
    def name(self) -> str:
        """As it is typed: int4:channel,token."""
        return f"{self.dtype}:{self.key_axis},{self.value_axis}"

    def key(self, values: Tensor, valid: Tensor) -> Tensor:
        """Keys as the cache gives them back."""
        return self._rounded(values, self.key_axis, valid)

    def value(self, values: Tensor, valid: Tensor) -> Tensor:
        """Values as the cache gives them back."""
        return self._rounded(values, self.value_axis, valid)

    def _rounded(self, values: Tensor, axis: str, valid: Tensor) -> Tensor:
        """Padding has no part in a scale."""
        shared = AXES[axis]
        counted = values.masked_fill(~valid[:, None, :, None], 0.0)
        if self.dtype == "fp8":
            scale = counted.abs().amax(shared, keepdim=True).clamp_min(TINY) / E4M3_MAX
            return (values / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float() * scale
        low, high = counted.amin(shared, keepdim=True), counted.amax(shared, keepdim=True)
        step = ((high - low) / (2 ** BITS[self.dtype] - 1)).clamp_min(TINY)
        return ((values - low) / step).round().clamp(0, 2 ** BITS[self.dtype] - 1) * step + low


DEFAULT = ("fp8:tensor,tensor", "int8:head,head", "int4:channel,token", "int4:token,token")


def read_form(text: str) -> CacheForm:
    """`fp8`, `int4:head` or `int4:channel,token`. Raises UsageError."""
    found = re.fullmatch(r"(fp8|int8|int4)(?::(\w+)(?:,(\w+))?)?", text.strip().lower())
    axes = [one for one in (found.groups()[1:] if found else ()) if one]
    if found is None or not set(axes) <= set(AXES):
        raise UsageError(
            f"--kv-dtype {text!r}: expected fp8, int8 or int4, then :KEYS,VALUES of {', '.join(AXES)} (int4:channel,token)"
        )
    key = axes[0] if axes else "tensor"
    return CacheForm(dtype=found[1], key_axis=key, value_axis=axes[1] if len(axes) > 1 else key)

"""What arithmetic the walk pretends to be done in: `fp32`, `bf16`, `fp16`, `fp16-norm32`, `fp8`, `int8`, `w4a16`, `w8a4` …

    bf16, fp16      weights, activations and the residual stream in that dtype
    fp16-norm32     fp16, but norms (gain included) compute and multiply in fp32
    fp8, int8       inputs of every linear rounded to E4M3 or to 8 bits, one scale a token
    w<b>a<b>        weights rounded to b bits in groups of 128 inputs, inputs to b bits a token; 16 leaves them alone

Rounding is to nearest with scale absmax / (2^(b-1) - 1), the symmetric form that every engine has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from degarble.errors import UsageError
from degarble_engine.numerics.tap import is_norm

E4M3_MAX = 448.0
GROUP = 128
LONG = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
"""Names as configs spell them."""
PLAIN = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """One choice; the default is exact enough to be the arbiter."""

    name: str = "fp32"
    dtype: torch.dtype = torch.float32
    norm_dtype: torch.dtype | None = None
    weight_bits: int | None = None
    activation_bits: int | None = None
    activation_fp8: bool = False

    def weight(self, values: Tensor, is_linear: bool, is_gain: bool = False) -> Tensor:
        """A weight as this arithmetic would hold it."""
        if is_linear and self.weight_bits is not None and values.ndim >= 2:
            values = rounded(values, self.weight_bits, GROUP)
        return values.to(self.norm_dtype if is_gain and self.norm_dtype is not None else self.dtype)

    def input(self, values: Tensor) -> Tensor:
        """The input of a linear as its kernel would read it."""
        if self.activation_fp8:
            return fp8(values)
        return values if self.activation_bits is None else rounded(values, self.activation_bits, None)

    def install(self, layer: nn.Module) -> list[RemovableHandle]:
        """Hooks that make a layer compute so."""
        handles: list[RemovableHandle] = []
        for module in layer.modules():
            if isinstance(module, nn.Linear) and (self.activation_fp8 or self.activation_bits is not None):
                handles.append(module.register_forward_pre_hook(lambda _, args: (self.input(args[0]), *args[1:])))
            if is_norm(module) and self.norm_dtype is not None:
                handles.append(
                    module.register_forward_pre_hook(lambda _, args: (args[0].to(self.norm_dtype), *args[1:]))
                )
                handles.append(module.register_forward_hook(lambda _, __, output: output.to(self.dtype)))
        return handles


FP32 = Precision()


def short_name(text: str) -> str:
    """`float16` is `fp16`; anything unknown is given back in small letters."""
    name = text.strip().lower()
    return LONG.get(name, name)


def parse(text: str) -> Precision:
    """Read a name. Raises UsageError for one that is none."""
    name = short_name(text)
    if name in PLAIN:
        return Precision(name=name, dtype=PLAIN[name])
    if name == "fp16-norm32":
        return Precision(name=name, dtype=torch.float16, norm_dtype=torch.float32)
    if name == "fp8":
        return Precision(name=name, activation_fp8=True)
    if name == "int8":
        return Precision(name=name, activation_bits=8)
    found = re.fullmatch(r"w(\d{1,2})a(\d{1,2})", name)
    bits = [int(one) for one in found.groups()] if found else []
    if not bits or not all(2 <= one <= 16 for one in bits):
        raise UsageError(f"--dtype {text!r}: fp32, bf16, fp16, fp16-norm32, fp8, int8, or w4a16, w8a8 … (2 to 16 bits)")
    weights, activations = (None if one == 16 else one for one in bits)
    return Precision(name=name, weight_bits=weights, activation_bits=activations)


def rounded(values: Tensor, bits: int, group: int | None) -> Tensor:
    """Symmetric rounding of the last axis, in groups of `group` values or all at once."""
    size = group if group and values.shape[-1] % group == 0 else values.shape[-1]
    parts = values.float().reshape(*values.shape[:-1], -1, size)
    largest = 2 ** (bits - 1) - 1
    scale = parts.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / largest
    return ((parts / scale).round().clamp(-largest - 1, largest) * scale).reshape(values.shape).to(values.dtype)


def fp8(values: Tensor) -> Tensor:
    """E4M3 with one scale a token."""
    scale = values.float().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / E4M3_MAX
    return ((values.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(values.dtype)

"""MXFP4 matrices: E2M1 codes and an exponent byte for every 32 inputs.

                compressed-tensors                   DeepSeek-V4 experts              Quark, ModelOpt
    codes       weight_packed   U8 [out, in / 2]     weight            I8 | U8        weight        U8
    exponents   weight_scale    U8 [out, in / 32]    weight_scale_inv  F8_E8M0 | U8   weight_scale  U8

    w[o, i] = value(code[o, i]) * 2 ** (byte[o, i // 32] - 127)

The low nibble comes first. No global scale. gpt-oss keeps its experts in another shape: mxfp4_experts.py. Sources:
compressed-tensors `mxfp4/base.py`, transformers `finegrained_fp8.py`, vLLM `quark_ocp_mx.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats import e2m1, e8m0
from degarble.formats.float_agreement import MODELOPT
from degarble.formats.fp4_matrix import Fp4Matrix
from degarble.formats.interface import PAYLOAD, StoredModule

GROUP = 32
LARGEST_EXPONENT = 2
"""Exponent of 6's power of two, 4: what the block's largest value is brought to."""


def quantize(weight: Array) -> tuple[Array, Array]:
    """[..., out, in] -> codes uint8 and exponent bytes [..., out, in / 32]. Source: OCP MX 1.0, section 6.3."""
    blocks = weight.astype(np.float32).reshape(*weight.shape[:-1], -1, GROUP)
    amax = np.abs(blocks).max(axis=-1)
    _, exponent = np.frexp(amax)
    power = np.where(amax > 0, exponent - 1 - LARGEST_EXPONENT, 0).clip(-e8m0.BIAS, e8m0.BIAS)
    codes = e2m1.encode(blocks / np.ldexp(np.float32(1), power)[..., None])
    return codes.reshape(weight.shape), (power + e8m0.BIAS).astype(np.uint8)


class Mxfp4(Fp4Matrix):
    """MXFP4 as compressed-tensors writes it."""

    name: ClassVar[str] = "mxfp4"
    roles: ClassVar[Mapping[str, str]] = {
        "weight_packed": PAYLOAD,
        "weight_scale": "scale",
        "input_global_scale": "input_scale",
        "bias": "bias",
    }
    group: ClassVar[int] = GROUP
    scale_dtypes: ClassVar[frozenset[str]] = e8m0.DTYPES
    methods: ClassVar[frozenset[str]] = frozenset({"compressed-tensors"})
    method: ClassVar[str] = "compressed-tensors"
    strategy: ClassVar[str] = "group"
    needed: ClassVar[tuple[str, ...]] = ("scale",)

    def scales(self, module: StoredModule) -> Array:
        """[out, in / 32] float32."""
        return e8m0.decode(module.array("scale"))

    def stored_scales(self, module: StoredModule, scales: Array) -> Array:
        """Exponent bytes."""
        return e8m0.encode(scales)


class DeepseekMxfp4(Mxfp4):
    """The same under DeepSeek's names: two codes in an int8, exponents under `weight_scale_inv`."""

    name: ClassVar[str] = "deepseek_mxfp4"
    roles: ClassVar[Mapping[str, str]] = {"weight": PAYLOAD, "weight_scale_inv": "scale", "bias": "bias"}
    methods: ClassVar[frozenset[str]] = frozenset({"fp8"})
    method: ClassVar[str] = "fp8"


class QuarkMxfp4(Mxfp4):
    """The same under `weight` and `weight_scale`, as AMD Quark and ModelOpt write it."""

    name: ClassVar[str] = "quark_mxfp4"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight_scale": "scale",
        "input_scale": "input_scale",
        "pre_quant_scale": "pre_quant_scale",
        "bias": "bias",
    }
    methods: ClassVar[frozenset[str]] = MODELOPT | {"quark"}
    method: ClassVar[str] = "quark"

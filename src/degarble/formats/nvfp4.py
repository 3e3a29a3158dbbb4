"""NVFP4: E2M1 codes, an E4M3 scale for every 16 inputs, and one global scale.

                   compressed-tensors                       ModelOpt
    codes          weight_packed        U8 [out, in / 2]    weight          U8 [out, in / 2]     low nibble first
    block scales   weight_scale    F8_E4M3 [out, in / 16]   weight_scale    F8_E4M3 [out, in / 16]
    global scale   weight_global_scale  F32 [1]             weight_scale_2  F32 []
                   = 448 * 6 / amax, DIVIDES                = amax / (448 * 6), MULTIPLIES
    activations    input_global_scale   F32 [1]             input_scale     F32 []

    w = value(code) * (scale / global)                      w = value(code) * (scale * global)

The two global scales are reciprocals: read under the other name, weights are off by 10**6 and more. q/k/v and gate/up
that an engine fuses must share one. A block of zeros carries any scale, usually 1. The parentheses are the tools' own
order of operations, and decide the last bit. Sources: compressed-tensors `nvfp4/base.py`, ModelOpt `nvfp4_tensor.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats import e2m1, float8
from degarble.formats.float_agreement import MODELOPT
from degarble.formats.fp4_matrix import Fp4Matrix
from degarble.formats.interface import PAYLOAD, StoredModule

GROUP = 16
LARGEST = 448 * 6
"""The largest E4M3 scale times the largest E2M1 value."""


def quantize(weight: Array) -> tuple[Array, Array, float]:
    """[out, in] -> codes uint8, E4M3 block scales as float32 [out, in / 16], and the global scale as a divisor.

    ModelOpt stores the divisor's reciprocal. A block of zeros gets scale 1.
    """
    blocks = weight.astype(np.float32).reshape(*weight.shape[:-1], -1, GROUP)
    amax = np.abs(blocks).max(axis=-1)
    divisor = np.float32(LARGEST) / np.float32(amax.max() or LARGEST)
    ideal = np.where(amax > 0, amax / np.float32(e2m1.MAX) * divisor, np.float32(1))
    scales = float8.decode(float8.encode(np.maximum(ideal, np.float32(2**-9)), "F8_E4M3"), "F8_E4M3")
    codes = e2m1.encode(blocks / (scales / divisor)[..., None])
    return codes.reshape(weight.shape), scales, float(divisor)


class Nvfp4(Fp4Matrix):
    """NVFP4 as compressed-tensors writes it."""

    name: ClassVar[str] = "nvfp4"
    roles: ClassVar[Mapping[str, str]] = {
        "weight_packed": PAYLOAD,
        "weight_scale": "scale",
        "weight_global_scale": "global_scale",
        "input_global_scale": "input_scale",
        "bias": "bias",
    }
    group: ClassVar[int] = GROUP
    scale_dtypes: ClassVar[frozenset[str]] = frozenset({"F8_E4M3"})
    methods: ClassVar[frozenset[str]] = frozenset({"compressed-tensors"})
    method: ClassVar[str] = "compressed-tensors"
    strategy: ClassVar[str] = "tensor_group"
    needed: ClassVar[tuple[str, ...]] = ("scale", "global_scale")
    static: ClassVar[tuple[str, ...]] = ("static", "local")

    def scales(self, module: StoredModule) -> Array:
        """[out, in / 16] float32, block scale over global scale."""
        scale = module.array("scale").astype(np.float32)
        return np.asarray(scale / global_scale(module, scale.ndim))

    def stored_scales(self, module: StoredModule, scales: Array) -> Array:
        """Effective scales times the global scale, as E4M3 codes."""
        return float8.encode(scales * global_scale(module, scales.ndim), "F8_E4M3")


class ModelOptNvfp4(Fp4Matrix):
    """NVFP4 as ModelOpt writes it."""

    name: ClassVar[str] = "modelopt_nvfp4"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight_scale": "scale",
        "weight_scale_2": "global_scale",
        "input_scale": "input_scale",
        "pre_quant_scale": "pre_quant_scale",
        "bias": "bias",
    }
    group: ClassVar[int] = GROUP
    scale_dtypes: ClassVar[frozenset[str]] = frozenset({"F8_E4M3"})
    methods: ClassVar[frozenset[str]] = MODELOPT
    method: ClassVar[str] = "modelopt"
    strategy: ClassVar[str] = "tensor_group"
    needed: ClassVar[tuple[str, ...]] = ("scale", "global_scale")
    values: ClassVar[Array] = e2m1.VALUES_WITHOUT_MINUS_ZERO

    def scales(self, module: StoredModule) -> Array:
        """[out, in / 16] float32, block scale times global scale."""
        scale = module.array("scale").astype(np.float32)
        return np.asarray(scale * global_scale(module, scale.ndim))

    def stored_scales(self, module: StoredModule, scales: Array) -> Array:
        """Effective scales over the global scale, as E4M3 codes."""
        return float8.encode(scales / global_scale(module, scales.ndim), "F8_E4M3")


def global_scale(module: StoredModule, ndim: int) -> Array:
    """The one global scale, or one per expert, as float32 that broadcasts over `ndim` axes."""
    stored = module.array("global_scale").astype(np.float32).reshape(-1)
    return stored.reshape(-1, *(1,) * (ndim - 1)) if stored.size > 1 else stored.reshape((1,) * ndim)

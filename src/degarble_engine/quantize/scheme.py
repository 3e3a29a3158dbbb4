"""What a quantised linear keeps: `W4A16`, `W4A16_ASYM`, `W8A16`, `W8A8`, `W8A4`, `FP8`, `FP8_BLOCK` …

    W<b>A16[_ASYM]   b-bit integers (2 to 8) in groups of inputs; activations stay as they are
    W<b>A<a>         b-bit integers, one scale a row; activations of a bits, one scale a token, made while serving
    FP8              E4M3, one scale a row; activations E4M3, one scale a token, made while serving
    FP8_BLOCK        E4M3, one scale for 128 x 128 weights, as DeepSeek-V3 has it; activations by groups of 128
    FP8_STATIC       E4M3, one scale a matrix; activations E4M3 under one scale that calibration finds
    NVFP4            E2M1, an E4M3 scale for 16 inputs and one for all; activations alike, under a scale of calibration
    MXFP4            E2M1, a power of two for 32 inputs; activations alike
    NVFP4A16, MXFP4A16   the same weights; activations stay as they are

Names and meanings are those of compressed-tensors' presets (`quantization/quant_scheme.py`), with any width in between.
"""

from __future__ import annotations

import re

import msgspec

from degarble.errors import UsageError

DEFAULT_GROUP = 128
BLOCK = (128, 128)
NAMES = (
    "W4A16, W4A16_ASYM, W8A16, W8A8, W8A4, FP8, FP8_STATIC, FP8_BLOCK, NVFP4, NVFP4A16, MXFP4, MXFP4A16 "
    "(any W2 to W8 with A16, and W4 to W8 with A4 to A8)"
)


class QuantScheme(msgspec.Struct, frozen=True, kw_only=True):
    """How weights are kept, and what serving does to activations."""

    name: str
    type: str
    """int | float"""
    num_bits: int
    symmetric: bool = True
    strategy: str = "group"
    """group | channel | tensor | block"""
    group_size: int | None = None
    block_shape: tuple[int, int] | None = None
    activation_bits: int | None = None
    """None: activations are left alone."""
    least_zero: int = 0
    """The smallest zero point that every reader of the export gets right."""
    scale_type: str = "float"
    """float | e4m3 (under a global scale) | e8m0"""
    is_multiplied: bool = False
    """Whether the export's global scale multiplies; else it divides."""
    is_static: bool = False
    """Whether activations have a scale that calibration finds."""

    @property
    def rows_are_apart(self) -> bool:
        """Whether each output row has a grid of its own, so that rows of several linears can be rounded together."""
        return self.strategy != "block"

    def group_of(self, in_features: int) -> int:
        """Inputs that share a scale."""
        return self.group_size or in_features


def _fp4(name: str, size: int, scale_type: str) -> QuantScheme:
    is_weight_only = name.endswith("A16")
    return QuantScheme(
        name=name,
        type="float",
        num_bits=4,
        group_size=size,
        activation_bits=None if is_weight_only else 4,
        scale_type=scale_type,
        is_static=scale_type == "e4m3" and not is_weight_only,
    )


FP4 = {
    name: _fp4(name, *form)
    for family, form in (("NVFP4", (16, "e4m3")), ("MXFP4", (32, "e8m0")))
    for name in (family, f"{family}A16")
}


def parse_scheme(name: str, group_size: int | None = None) -> QuantScheme:
    """Read a name. Raises UsageError for one that is none, or a group size that it cannot have."""
    upper = name.strip().upper()
    if upper in ("FP8", "FP8_DYNAMIC"):
        found = QuantScheme(name="FP8", type="float", num_bits=8, strategy="channel", activation_bits=8)
    elif upper == "FP8_BLOCK":
        found = QuantScheme(
            name=upper, type="float", num_bits=8, strategy="block", block_shape=BLOCK, activation_bits=8
        )
    elif upper == "FP8_STATIC":
        found = QuantScheme(name=upper, type="float", num_bits=8, strategy="tensor", activation_bits=8, is_static=True)
    elif upper in FP4:
        found = FP4[upper]
    else:
        found = _integers(upper, name)
    if found.scale_type != "float":
        if group_size not in (None, found.group_size):
            raise UsageError(f"--group-size {group_size}: {found.name} has groups of {found.group_size}")
        return found
    if found.strategy != "group":
        if group_size is not None:
            raise UsageError(f"--group-size {group_size}: {found.name} has one scale a {found.strategy}")
        return found
    size = DEFAULT_GROUP if group_size is None else group_size
    if size < 8:
        raise UsageError(f"--group-size {size}: at least 8 inputs share a scale")
    return msgspec.structs.replace(found, group_size=size)


def _integers(upper: str, name: str) -> QuantScheme:
    match = re.fullmatch(r"W([2-8])A(16|[4-8])(_ASYM)?", upper)
    if match is None or (match[2] != "16" and (int(match[1]) < 4 or match[3])):
        raise UsageError(f"--scheme {name[:40]!r}: {NAMES}")
    bits, activations = int(match[1]), int(match[2])
    is_weight_only = activations == 16
    return QuantScheme(
        name=upper,
        type="int",
        num_bits=bits,
        symmetric=match[3] is None,
        strategy="group" if is_weight_only else "channel",
        activation_bits=None if is_weight_only else activations,
    )

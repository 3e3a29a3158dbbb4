"""FP8 with one scale for every block of rows and columns, as DeepSeek made popular.

    weight            F8_E4M3              [out, in]
    weight_scale_inv  F32 | F8_E8M0 | U8   [ceil(out / 128), ceil(in / 128)]      DeepSeek, Qwen, MiniMax
    weight_scale      BF16 | F32           the same grid                          compressed-tensors (`block`)
    weight_scale      F32                  [row blocks, 1, col blocks, 1]         ModelOpt (FP8_PB_WO)
    activation_scale  F32                  []                                     static activations (Mistral)

    w[o, i] = code[o, i] * scale[o // 128, i // 128]        despite `_inv` it MULTIPLIES

    576 rows in blocks:   | 0..127 | 128..255 | 256..383 | 384..511 | 512..575 |    5 row blocks, the last half full

Two readers derive the block size as rows // scale rows, which gives 115 here: wrong from the first block on. A scale of
one number, or one per row, is read too (Mistral stores per-tensor scales as `weight_scale_inv`), and contradicts a
declared block size. Sources: DeepSeek-V3 `README_WEIGHTS.md` and `kernel.py`; transformers `finegrained_fp8.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.tensor_data import Array
from degarble.formats import e8m0
from degarble.formats.agreement import shape_contradiction
from degarble.formats.float8 import SCALE_DTYPES, decode, encode, largest, layout_of, squeezed
from degarble.formats.float_agreement import MODELOPT, disagreements, dtype_contradictions, missing_roles
from degarble.formats.fp8 import align, strategy_of
from degarble.formats.interface import PAYLOAD, Axis, Contradiction, Form, Parts, StoredModule, WeightFormat
from degarble.formats.rewrite import rewrite
from degarble.formats.scheme import Scheme

Block = tuple[int, int]

USUAL_BLOCKS: tuple[Block, ...] = (
    (128, 128), (64, 64), (256, 256), (32, 32), (16, 16), (512, 512), (1, 128), (1, 64), (1, 32),
)  # fmt: skip
"""Tried in this order where nothing is declared. Only squares and row strips: any grid fits some odd rectangle."""


def grid_of(shape: tuple[int, ...], block: Block) -> tuple[int, ...]:
    """Shape of the scales for a weight: the last two axes divided by the block, rounded up."""
    return (*shape[:-2], -(-shape[-2] // block[0]), -(-shape[-1] // block[1]))


def expand(scales: Array, block: Block, shape: tuple[int, ...]) -> Array:
    """Repeat each scale over its block and cut the ragged edges: [row blocks, col blocks] -> [out, in]."""
    if scales.shape != grid_of(shape, block):
        raise ValueError(f"blocks of {block} need a grid {list(grid_of(shape, block))}, found {list(scales.shape)}")
    rows = np.repeat(scales, block[0], axis=-2)[..., : shape[-2], :]
    return np.repeat(rows, block[1], axis=-1)[..., : shape[-1]]


def quantize(
    weight: Array, block: Block = (128, 128), *, dtype: str = "F8_E4M3", power_of_two: bool = False
) -> tuple[Array, Array]:
    """[out, in] -> codes [out, in] uint8 and float32 scales on the grid. Ragged blocks count as padded with zeros.

    `power_of_two` rounds scales up to UE8M0 *before* codes are made; rounding afterwards would change every weight.
    """
    grid = grid_of(weight.shape, block)
    padded = np.zeros((grid[0] * block[0], grid[1] * block[1]), np.float32)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    amax = np.abs(padded).reshape(grid[0], block[0], grid[1], block[1]).max(axis=(1, 3))
    scales = np.where(amax > 0, amax / np.float32(largest(dtype)), np.float32(1)).astype(np.float32)
    if power_of_two:
        scales = np.exp2(np.ceil(np.log2(scales))).astype(np.float32)
    return encode(weight / expand(scales, block, weight.shape), dtype), scales


def dequantize(codes: Array, scales: Array, block: Block, dtype: str = "F8_E4M3") -> Array:
    """[out, in] float32."""
    return np.asarray(decode(codes, dtype) * expand(scales.astype(np.float32), block, codes.shape))


def block_of(shape: tuple[int, ...], grid: tuple[int, ...], declared: Block | None) -> Block | None:
    """The block size that a stored grid has: the declared one if it fits, else a usual one, else None."""
    if len(shape) < 2 or len(grid) != len(shape):
        return None
    usual = USUAL_BLOCKS if declared is None else (declared, *USUAL_BLOCKS)
    return next((block for block in usual if grid_of(shape, block) == grid), None)


def _declared_block(declared: Scheme | None) -> Block | None:
    block = declared.block_shape if declared is not None else None
    return block if block is not None and min(block) > 0 else None


class Fp8Block(WeightFormat):
    """8-bit floats with block scales under `weight_scale_inv`."""

    name: ClassVar[str] = "fp8_block"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight_scale_inv": "scale",
        "activation_scale": "input_scale",
        "bias": "bias",
    }
    axes: ClassVar[Mapping[str, tuple[Axis, Axis | None]]] = {
        PAYLOAD: ((-2, 1), (-1, 1)),
        "scale": ((-2, "block"), (-1, "block")),
    }
    methods: ClassVar[frozenset[str]] = frozenset({"fp8"})

    def claim(self, parts: Parts, declared: Scheme | None) -> int:
        """See float8.layout_of."""
        layout, strength = layout_of(parts, declared)
        return strength if layout == self.name else 0

    def form(self, parts: Parts, declared: Scheme | None, expected: tuple[int, ...] | None) -> Form:
        """See WeightFormat.form."""
        by_role = self.by_role(parts)
        scheme = self._scheme(by_role, declared)
        return Form(
            format=self.name,
            scheme=scheme,
            shape=by_role[PAYLOAD].shape,
            roles=self.role_suffixes(parts),
            missing=missing_roles(by_role, ("scale",), declared),
            contradictions=tuple(self._contradictions(by_role, declared, scheme)),
        )

    def _scheme(self, by_role: Mapping[str, TensorInfo], declared: Scheme | None) -> Scheme:
        payload, scale = by_role[PAYLOAD], by_role.get("scale")
        strategy: str | None = "block"
        block = _declared_block(declared)
        if scale is not None:
            strategy, block = _stored_grid(payload, scale, declared)
        return Scheme(
            method=declared.method if declared is not None and declared.method in self.methods else min(self.methods),
            format=declared.format if declared is not None else None,
            type="float",
            num_bits=8,
            strategy=strategy,
            block_shape=block,
            symmetric=True,
            activations=declared.activations if declared is not None else None,
        )

    def _contradictions(
        self, by_role: Mapping[str, TensorInfo], declared: Scheme | None, scheme: Scheme
    ) -> Iterator[Contradiction]:
        payload, scale = by_role[PAYLOAD], by_role.get("scale")
        yield from disagreements(declared, scheme, self.methods)
        yield from dtype_contradictions(by_role, {"scale": SCALE_DTYPES | e8m0.DTYPES, "input_scale": SCALE_DTYPES})
        block = _declared_block(declared)
        if len(payload.shape) < 2:
            yield shape_contradiction("shape", PAYLOAD, "a matrix [out, in]", payload)
        elif scale is None:
            return
        elif block is not None and not _fits(squeezed(scale.shape, payload.shape), grid_of(payload.shape, block)):
            grid = list(grid_of(payload.shape, block))
            want = f"{grid} for blocks of {block[0]}x{block[1]} over {list(payload.shape)}"
            yield shape_contradiction("block_grid", "scale", want, scale)
        elif scheme.strategy is None:
            want = f"a grid that tiles {list(payload.shape)}: {list(grid_of(payload.shape, (128, 128)))} for 128x128"
            yield shape_contradiction("block_grid", "scale", want, scale)
        elif block is None and declared is not None and _is_other(declared, scheme):
            yield shape_contradiction("block_grid", "scale", f"one scale per {declared.strategy}", scale)

    def codes(self, module: StoredModule) -> Array:
        """[out, in] raw codes as uint8."""
        return module.array(PAYLOAD).view(np.uint8)

    def scales(self, module: StoredModule) -> Array:
        """[row blocks, col blocks] float32; exponent bytes are decoded."""
        info = module.parts[module.form.roles["scale"]]
        stored = module.array("scale")
        scales = e8m0.decode(stored) if info.dtype in e8m0.DTYPES else stored.astype(np.float32)
        payload = module.parts[module.form.roles[PAYLOAD]].shape
        scales = scales.reshape(squeezed(scales.shape, payload))
        return scales if len(scales.shape) == len(payload) else align(scales, payload)

    def dequantize(self, module: StoredModule) -> Array:
        """[out, in] float32. Raises ValueError where the grid does not tile the weight."""
        payload, scheme, scales = module.parts[module.form.roles[PAYLOAD]], module.form.scheme, self.scales(module)
        values = decode(self.codes(module), payload.dtype)
        if scheme is not None and scheme.block_shape is not None:
            return np.asarray(values * expand(scales, scheme.block_shape, payload.shape))
        return np.asarray(values * align(scales, payload.shape))

    def replace(self, module: StoredModule, parts: Mapping[str, Array]) -> dict[str, Array]:
        """`codes` are raw codes (uint8), `scales` float32; other keys are roles whose stored values are given."""
        new = dict(parts)
        scale = module.part("scale")
        if "scales" in new:
            scales = new.pop("scales")
            new["scale"] = e8m0.encode(scales) if scale is not None and scale.dtype in e8m0.DTYPES else scales
        if "codes" in new:
            new[PAYLOAD] = new.pop("codes")
        return rewrite(module, new)


class CompressedFp8Block(Fp8Block):
    """The same grid under compressed-tensors' name, `weight_scale`."""

    name: ClassVar[str] = "compressed_fp8_block"
    roles: ClassVar[Mapping[str, str]] = {
        "weight": PAYLOAD,
        "weight_scale": "scale",
        "input_scale": "input_scale",
        "bias": "bias",
    }
    methods: ClassVar[frozenset[str]] = MODELOPT | {"compressed-tensors", "fp8", "quark"}


def _stored_grid(payload: TensorInfo, scale: TensorInfo, declared: Scheme | None) -> tuple[str | None, Block | None]:
    """Strategy and block size that the two shapes show; (None, None) if they do not fit together."""
    block, grid = _declared_block(declared), squeezed(scale.shape, payload.shape)
    if len(payload.shape) >= 2 and block is not None and grid_of(payload.shape, block) == grid:
        return "block", block
    single = strategy_of(scale, payload.shape, declared)
    inferred = block_of(payload.shape, grid, block)
    is_declared = declared is not None and declared.strategy == single
    if single == "channel" or (single == "tensor" and (inferred is None or is_declared)):
        return single, None
    return ("block", inferred) if inferred is not None else (None, None)


def _fits(stored: tuple[int, ...], grid: tuple[int, ...]) -> bool:
    """Equal, or one number for a weight that is one block."""
    return stored == grid or num_elements(stored) == num_elements(grid) == 1


def _is_other(declared: Scheme, stored: Scheme) -> bool:
    """Blocks stored where one scale per tensor or row is declared, or the other way round."""
    if declared.strategy == "block":
        return stored.strategy in ("tensor", "channel")
    return stored.strategy == "block" and declared.strategy in ("tensor", "channel") and stored.block_shape is not None

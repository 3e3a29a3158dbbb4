"""Marlin-style tiles: 16 inputs x 64 outputs, lane by lane, [in / 16, out * 16 * bits / 32].

One tile has 32 lanes x 4 warps. Lane l of warp w owns two outputs and four inputs, as the tensor core wants them:

    inputs    2(l % 4) + {0, 1, 8, 9}              v0 v1 v2 v3 for the first output, v4 v5 v6 v7 for the second
    outputs   16w + l // 4 + {0, 8}

    4 bits, word 4l + w:          31 | v7 | v5 | v3 | v1 | v6 | v4 | v2 | v0 | 0       interleave 0 2 4 6 1 3 5 7
    8 bits, word 8l + 2w:         31 | v3 | v1 | v2 | v0 | 0                            interleave 0 2 1 3
            word 8l + 2w + 1:     31 | v7 | v5 | v6 | v4 | 0

Tiles follow each other along the outputs, then along the inputs. The relayouts below gather lane by lane, as the CUDA
kernels `gptq_marlin_repack` and `awq_marlin_repack` do; `unpack` undoes the permutation of the whole tile, as Marlin's
own Python packer states it. These are two independent texts of one layout, so their agreement is the proof. What is
proven is this order for 16-bit activations, 4 and 8 bits, without act-order. It was read, not run on a GPU: kernels for
8-bit activations and the 2:4 sparse layout order their tiles differently and are not covered.

Sources: IST-DASLab/marlin `marlin/__init__.py`; vLLM `csrc/quantization/gptq_marlin/gptq_marlin_repack.cu`,
`awq_marlin_repack.cu`, `layers/quantization/utils/marlin_utils_test.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack.awq_gemm import PACKED, REVERSE
from degarble.repack.interface import WORD_BITS, Layout, Relayout, Step, checked, fields_of, fitting, words_of

TILE_IN = 16
TILE_OUT = 64
TILE = TILE_IN * TILE_OUT
INTERLEAVE = {4: (0, 2, 4, 6, 1, 3, 5, 7), 8: (0, 2, 1, 3)}


@cache
def permutation(num_bits: int) -> Array:
    """[1024]: field f of a tile holds element permutation[f] of [4 blocks of outputs, 16 inputs, 16 outputs]."""
    order = []
    for lane in range(32):
        corner = 16 * 2 * (lane % 4) + lane // 4  # first input, first output of the lane
        owned = [corner + 16 * row + 8 * half for half in (0, 1) for row in (0, 1, 8, 9)]
        order += [16 * 16 * block + element for block in range(4) for element in owned]
    lanes = INTERLEAVE[num_bits]
    return np.array(order).reshape(-1, len(lanes))[:, lanes].reshape(-1)


class Marlin(Layout):
    """Marlin-style tile order."""

    name: ClassVar[str] = "marlin"
    widths: ClassVar[tuple[int, ...]] = (4, 8)

    def granule(self, num_bits: int) -> tuple[int, int]:
        """One tile."""
        return TILE_OUT, TILE_IN

    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] -> int32 [in / 16, out * 16 * bits / 32]."""
        out, inputs = checked(codes, self.granule(num_bits), self.name)
        blocks = codes.T.reshape(inputs // 16, 16, out // 16, 16).transpose(0, 2, 1, 3)  # [in/16, out/16, 16, 16]
        fields = blocks.reshape(-1, TILE)[:, permutation(num_bits)]
        return words_of(fields.reshape(inputs // 16, -1, WORD_BITS // num_bits), num_bits)

    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """int32 [in / 16, out * 16 * bits / 32] -> [out, in]."""
        out, inputs = shape
        fitting(stored, (inputs // 16, out * 16 * num_bits // WORD_BITS), np.int32, self.name)
        blocks = np.empty((inputs * out // TILE, TILE), np.uint8)
        blocks[:, permutation(num_bits)] = fields_of(stored, num_bits).reshape(-1, TILE)
        turned = blocks.reshape(inputs // 16, out // 16, 16, 16).transpose(0, 2, 1, 3).reshape(inputs, out)
        return np.ascontiguousarray(turned.T)


def _lanes(num_bits: int, shape: tuple[int, int]) -> tuple[Array, Array]:
    """(input, output) of every value, each [tiles down, tiles across, 32 lanes, 4 warps, 8 values]."""
    out, inputs = shape
    down, across, lane, warp, value = np.ogrid[0 : inputs // TILE_IN, 0 : out // TILE_OUT, 0:32, 0:4, 0:8]
    offsets = np.array([0, 1, 8, 9])
    source_in = TILE_IN * down + lane % 4 * 2 + offsets[value % 4] + 0 * (across + warp)
    source_out = TILE_OUT * across + 16 * warp + lane // 4 + value // 4 * 8 + 0 * down
    return np.broadcast_arrays(source_in, source_out)[0], np.broadcast_arrays(source_in, source_out)[1]


def _joined(num_bits: int, shape: tuple[int, int]) -> Step:
    """Each lane interleaves its eight values and writes one word (4 bits) or two (8 bits)."""
    lanes = INTERLEAVE[num_bits]

    def join(values: Array) -> Array:
        ordered = values.reshape(*values.shape[:-1], PACKED // len(lanes), len(lanes))[..., lanes]
        return words_of(ordered, num_bits).reshape(shape[1] // TILE_IN, -1)

    return Step(name=f"interleave {' '.join(map(str, lanes))} and join", function=join)


def _from_gptq(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    inputs, outputs = _lanes(num_bits, shape)
    per_word, mask = WORD_BITS // num_bits, np.uint32((1 << num_bits) - 1)
    shifts = (inputs % per_word * num_bits).astype(np.uint32)

    def gather(words: Array) -> Array:
        fields = words.view(np.uint32)[inputs // per_word, outputs] >> shifts & mask
        return np.asarray(fields.astype(np.uint8))

    return Step(name="gather eight values a lane", function=gather), _joined(num_bits, shape)


def _from_awq(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    inputs, outputs = _lanes(num_bits, shape)
    shifts = (np.array(REVERSE)[outputs % PACKED] * num_bits).astype(np.uint32)

    def gather(words: Array) -> Array:
        fields = words.view(np.uint32)[inputs, outputs // PACKED] >> shifts & np.uint32(15)
        return np.asarray(fields.astype(np.uint8))

    return Step(name="gather eight values a lane, undoing AWQ's order", function=gather), _joined(num_bits, shape)


RELAYOUTS = (
    Relayout(
        source="gptq",
        target="marlin",
        widths=(4, 8),
        steps=_from_gptq,
        origin="vLLM gptq_marlin_repack.cu, without act-order",
    ),
    Relayout(
        source="awq-gemm",
        target="marlin",
        widths=(4,),
        steps=_from_awq,
        origin="vLLM awq_marlin_repack.cu",
    ),
)

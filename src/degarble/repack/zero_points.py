"""Zero points stored minus one: GPTQ v1 keeps zero - 1 in each field and engines add one back.

    per field, modulo 2**bits     0 -> 15, 1 -> 0, …      one added back modulo 2**bits restores every zero point
    per word                      0x80808080 - 0x11111111 = 0x6f6f6f6f:
                                  a zero of 0 borrows from the field above it, which arrives one too low

The second is how a v2 file is turned into v1 with one subtraction a word, and what AutoAWQ's path to the ExLlama kernel
amounts to (fields of -1 are shifted and summed). It is harmless only while no zero point is 0. And an engine that adds
one without masking reads a wrapped 15 as 16, where 0 was meant.

Sources: ModelCloud/GPTQModel#2350, GPTQModel `utils/model.py`, AutoAWQ `utils/packing_utils.py`.
"""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack.interface import Step, StepFunction, fields_of, words_of


def _ones(num_bits: int) -> np.uint32:
    """A one in every field of a word: 0x11111111 for 4 bits."""
    return np.uint32(sum(1 << shift for shift in range(0, 32, num_bits)))


def minus_one_per_field(num_bits: int) -> Step:
    """Words of zero points -> words of zero points minus one, each field on its own."""
    mask = (1 << num_bits) - 1
    return Step(
        name="minus one per field", function=lambda words: words_of((fields_of(words, num_bits) - 1) & mask, num_bits)
    )


def minus_one_per_word(num_bits: int) -> Step:
    """The same by one subtraction for the whole word: borrows run into the neighbour."""
    ones = _ones(num_bits)
    return Step(name="minus one per word", function=lambda words: (words.view(np.uint32) - ones).view(np.int32))


def plus_one_per_field(num_bits: int, *, masked: bool = True) -> StepFunction:
    """What the engine does: words -> [..., w, fields] zero points; unmasked, a wrapped zero arrives as 2**bits."""
    mask = (1 << num_bits) - 1

    def add(words: Array) -> Array:
        zeros = fields_of(words, num_bits).astype(np.int16) + 1
        return zeros & mask if masked else zeros

    return add

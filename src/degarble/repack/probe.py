"""The matrices that a relayout is tried on: every code at every position, with many different neighbours.

turns      position p holds code (p + k) mod 2**bits, for every k          all codes x all positions
flats      one code everywhere                                            all codes x all positions, like neighbours
random     independent codes                                              unrelated neighbours
alone      one code at one position, all else `background`                shows which codes collide, and spills
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from degarble.checkpoint.tensor_data import Array

NUM_RANDOM = 16
SEED = 308

Position = tuple[int, int]
"""(output, input)"""


def proofs(shape: tuple[int, int], num_bits: int) -> list[Array]:
    """Turns, flats and random matrices, each [out, in] uint8."""
    places = np.arange(shape[0] * shape[1]).reshape(shape)
    num_codes, rng = 1 << num_bits, np.random.default_rng(SEED)
    turns = [((places + turn) % num_codes).astype(np.uint8) for turn in range(num_codes)]
    flats = [np.full(shape, code, np.uint8) for code in range(num_codes)]
    return turns + flats + [rng.integers(0, num_codes, shape).astype(np.uint8) for _ in range(NUM_RANDOM)]


def alone(shape: tuple[int, int], position: Position, num_bits: int, background: int) -> list[Array]:
    """All codes in turn at one position."""
    found = []
    for code in range(1 << num_bits):
        matrix = np.full(shape, background, np.uint8)
        matrix[position] = code
        found.append(matrix)
    return found


def backgrounds(num_bits: int) -> tuple[int, int, int]:
    """No bit set, every bit set, every other bit set."""
    top = (1 << num_bits) - 1
    return 0, top, 0x55 & top


def all_positions(shape: tuple[int, int]) -> Iterator[Position]:
    """Row by row."""
    for output in range(shape[0]):
        for column in range(shape[1]):
            yield output, column


def spread(positions: Sequence[Position], number: int) -> list[Position]:
    """At most `number` of them, evenly spaced, the first and the last included."""
    if len(positions) <= number:
        return list(positions)
    indices = {round(place * (len(positions) - 1) / max(1, number - 1)) for place in range(number)}
    return [positions[index] for index in sorted(indices)]

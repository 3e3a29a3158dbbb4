"""Loops over stored codes, written for numba; as plain Python they give the same integers. See kernels.py.

    sum_bytes      a table of 256 entries, two codes a look-up, and a histogram of bytes      0.8 ns a code
    sum_planes     bits of equal weight of 64 codes in one word, and counts of bits set       0.25 ns a code

Four words a, b, c, d of sixteen 4-bit codes become four planes: bit 4 i of plane k is bit k of code i of a, bit 4 i + 1
that of b, and so on. Sums over the 64 codes do not ask for their order, and follow from counts of bits:

    sum q      = n0 + 2 n1 + 4 n2 + 8 n3                         n0: bits of plane 0, n01: of planes 0 and 1 both, …
    sum q^2    = n0 + 4 n1 + 16 n2 + 64 n3 + 4 n01 + 8 n02 + 16 (n03 + n12) + 32 n13 + 64 n23
"""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.unit_counts import Spill

FOLLOWED = 0x0111111101111111
"""The lowest bit of every code that another one of its 32-bit word follows; two words."""
EACH = 0x1111111111111111
"""Multiplied by this, the top four bits hold the number of codes whose lowest bit is set, up to 15."""
ATOM = 64
"""Codes of four words, whose counts belong to one half group."""
PLANES = 16
"""Counts kept of an atom: codes 0, then the planes of each set of bits in its binary number, but 13: codes 1."""
ZERO, ONE, TWO, THREE, FOUR, FIVE, SIX, TOP = (np.uint64(shift) for shift in (0, 1, 2, 3, 4, 5, 6, 56))
ONES, PAIRS, NIBBLES, BYTES = (np.uint64(((1 << 64) - 1) // every) for every in (3, 5, 17, 255))
"""Every second bit; two of four; four of eight; one of eight."""


def sum_bytes(
    stored: Array, runs: Array, table: Array, layout: Array, fields: Array, without: Array, counts: Array
) -> None:
    """Bytes [outputs, bytes] -> fields [5, outputs, groups], half groups without extremes [2], counts [4, 256].

    `runs`: halves of a group, bytes of a half, bytes whose entries may be added. Counts are kept in four tables, as one
    byte's often waits for the byte before it.
    """
    first, second, third, fourth, low, middle, small = layout
    halves, half, run = runs
    for output in range(fields.shape[1]):
        row, at = stored[output], 0
        for group in range(fields.shape[2]):
            for _ in range(halves):
                total = squares = zeros = ones = tops = np.int64(0)
                for _ in range(half // run):
                    entry = np.uint64(0)
                    for place in range(run):
                        byte = row[at + place]
                        entry += table[byte]
                        counts[place & 3, byte] += 1
                    at += run
                    total += np.int64(entry & low)
                    squares += np.int64(entry >> first & middle)
                    zeros += np.int64(entry >> second & small)
                    ones += np.int64(entry >> third & small)
                    tops += np.int64(entry >> fourth)
                if zeros + tops == 0:
                    without[0] += 1
                    if ones == 0:
                        without[1] += 1
                fields[0, output, group] += total
                fields[1, output, group] += squares
                fields[2, output, group] += zeros
                fields[3, output, group] += ones
                fields[4, output, group] += tops


def sum_planes(words: Array, runs: Array, fields: Array, without: Array, counts: Array) -> None:
    """Words [outputs, atoms, 4] -> as `sum_bytes`; counts [PLANES]. `runs`: halves of a group, atoms of a half, top code.

    More than 50 lines as one loop over rows, whose counts stay in the first-level cache; every inner loop over atoms
    but the last becomes vector instructions.
    """
    halves, half, last = runs
    atoms = words.shape[1]
    found = np.zeros((PLANES, atoms), np.uint64)
    for output in range(words.shape[0]):
        for at in range(atoms):
            a, b, c, d = words[output, at, 0], words[output, at, 1], words[output, at, 2], words[output, at, 3]
            even, other_even = a & ONES | (b & ONES) << ONE, c & ONES | (d & ONES) << ONE
            odd, other_odd = a >> ONE & ONES | b & ~ONES, c >> ONE & ONES | d & ~ONES
            p0, p2 = even & PAIRS | (other_even & PAIRS) << TWO, even >> TWO & PAIRS | other_even & ~PAIRS
            p1, p3 = odd & PAIRS | (other_odd & PAIRS) << TWO, odd >> TWO & PAIRS | other_odd & ~PAIRS
            found[0, at], found[1, at], found[2, at], found[3, at] = ~(p0 | p1 | p2 | p3), p0, p1, p0 & p1
            found[4, at], found[5, at], found[6, at], found[7, at] = p2, p0 & p2, p1 & p2, p0 & p1 & p2
            found[8, at], found[9, at], found[10, at], found[11, at] = p3, p0 & p3, p1 & p3, p0 & p1 & p3
            found[12, at], found[13, at] = p2 & p3, p0 & ~(p1 | p2 | p3)
            found[14, at], found[15, at] = p1 & p2 & p3, p0 & p1 & p2 & p3
        for plane in range(PLANES):
            many = ZERO
            for at in range(atoms):
                bits = found[plane, at]
                bits = bits - (bits >> ONE & ONES)
                bits = (bits & PAIRS) + (bits >> TWO & PAIRS)
                bits = ((bits + (bits >> FOUR)) & NIBBLES) * BYTES >> TOP
                found[plane, at] = bits
                many += bits
            counts[plane] += np.int64(many)
        for at in range(atoms):
            n0, n1, n2, n3 = found[1, at], found[2, at], found[4, at], found[8, at]
            found[1, at] = n0 + (n1 << ONE) + (n2 << TWO) + (n3 << THREE)
            n1, n2, n3 = n1 + found[3, at], n2 + found[9, at] + found[6, at], n3 + found[12, at]
            found[2, at] = n0 + (n1 << TWO) + (found[5, at] << THREE) + (n2 << FOUR) + (found[10, at] << FIVE)
            found[2, at] += n3 << SIX
        at = 0
        for group in range(fields.shape[2]):
            for _ in range(halves):
                zeros = ones = tops = np.int64(0)
                for _ in range(half):
                    fields[0, output, group] += np.int64(found[1, at])
                    fields[1, output, group] += np.int64(found[2, at])
                    zeros += np.int64(found[0, at])
                    ones += np.int64(found[13, at])
                    tops += np.int64(found[last, at])
                    at += 1
                without[0] += zeros + tops == 0
                without[1] += zeros + tops + ones == 0
                fields[2, output, group] += zeros
                fields[3, output, group] += ones
                fields[4, output, group] += tops


def levels_of_planes(counts: Array, codes: int) -> Array:
    """Counts of `sum_planes` over so many codes -> how often each of 16 codes occurs."""
    with_bits = counts.copy()
    with_bits[0] = codes
    one, three, five, nine, seven, eleven, all_bits = (counts[bits] for bits in (1, 3, 5, 9, 7, 11, 15))
    with_bits[13] = counts[13] - one + three + five + nine - seven - eleven + all_bits
    for bit in (1, 2, 4, 8):
        for level in range(PLANES):
            if not level & bit:
                with_bits[level] -= with_bits[level | bit]
    return with_bits


def count_spill(words: Array) -> Spill:
    """Pairs of words, [n] uint64 -> codes 0 that another code of their word follows, and how often that one is odd."""
    zeros = odd = np.int64(0)
    for index in range(words.size):
        word = words[index]
        any_bit = word | word >> np.uint64(1) | word >> np.uint64(2) | word >> np.uint64(3)
        is_zero = ~any_bit & np.uint64(FOLLOWED)
        is_odd = word >> np.uint64(4) & is_zero
        zeros += np.int64(is_zero * np.uint64(EACH) >> np.uint64(60))
        odd += np.int64(is_odd * np.uint64(EACH) >> np.uint64(60))
    return int(zeros), int(odd)

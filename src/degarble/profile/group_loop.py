"""What groups add up to in their rows, in one pass over their sums: a loop for numba. See kernels.py.

numpy's twins are `ends_of` (code_sums.py) and `moments_of` (value_sums.py). Sums of float64 follow the order of groups
in both, and every operation is the same, so that the results are equal to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from degarble.checkpoint.tensor_data import Array

Fields = tuple[Array, ...]
"""Sums, squares, zeros, ones and tops of GroupSums, [outputs, groups] int64."""


def add_groups(
    stored: Array, layout: Array, fields: Fields, scales: Array, around: Array, rows: Array, ends: Array, facts: Array
) -> Any:
    """Returns the largest |(q - z) s|, NaN where a value may be no finite float32 number; the rest is unset then.

    `stored` [outputs, bytes]; `layout`: width of a code, highest code, 0 if all groups have the zero point `around[0]`,
    else 1; `scales` and `around` flat, float32. Fills `rows` [2, outputs] with sums of squares and of values, `ends`
    [2, outputs] with counts of extremes, 1 not among them and among them, and adds to `facts`: groups that reach an
    end, both, 0; groups without an extreme, 1 not among them and among them.
    """
    width, last, step = layout
    all_totals, all_squares, all_zeros, all_ones, all_tops = fields
    outputs, groups = all_totals.shape
    size = np.float64(stored.shape[1] * 8 // width // groups)
    largest = np.float32(0)
    for output in range(outputs):
        of_squares = of_values = np.float64(0)
        for group in range(groups):
            total, squares = np.float64(all_totals[output, group]), np.float64(all_squares[output, group])
            zeros, ones, tops = all_zeros[output, group], all_ones[output, group], all_tops[output, group]
            facts[0] += zeros + tops > 0
            facts[1] += zeros > 0 and tops > 0
            facts[2] += zeros > 0
            facts[3] += zeros + tops == 0
            facts[4] += zeros + tops + ones == 0
            ends[0, output] += zeros + tops
            ends[1, output] += zeros + tops + ones
            place = output * groups + group
            scale, zero = scales[place], around[place * step]
            step_size = abs(scale)
            if not (np.isfinite(abs(zero) * step_size) and np.isfinite(abs(np.float32(last) - zero) * step_size)):
                return np.float32(np.nan)
            down = abs(np.float32(zeros == 0) - zero) * step_size  # none is further down, none further up
            up = abs(np.float32(last - (tops == 0)) - zero) * step_size
            if down > largest or up > largest:
                lowest, highest = last, 0
                length = stored.shape[1] // groups
                for at in range(group * length, group * length + length):
                    byte = np.int64(stored[output, at])
                    one, two = (byte, byte) if width == 8 else (byte & 15, byte >> 4)
                    lowest = min(lowest, one, two)
                    highest = max(highest, one, two)  # type: ignore[assignment]
                down = abs(np.float32(lowest) - zero) * step_size
                up = abs(np.float32(highest) - zero) * step_size
                largest = max(largest, down, up)
            wide, wide_zero = np.float64(scale), np.float64(zero)
            whole = np.rint(wide_zero)
            near = total - size * whole
            square = squares - whole * (total + near)
            rest = wide_zero - whole
            shifted = near - size * rest
            of_squares += wide * wide * (square - rest * (near + shifted))
            of_values += wide * shifted
        rows[0, output], rows[1, output] = of_squares, of_values
    return largest

"""Lanes of arrays, bf16 among them, and an exponential that stays in vector registers.

    bf16       numpy has no such type, so it is uint16 here: the upper half of a float32, rounded to even on the way in
    lanes      read and written without Python's question whether an index counts from the end, which stops vectorisation
    e^x        2^n e^r with n = round(x / ln 2), |r| ≤ ln 2 / 2, a polynomial of degree 7 (Cephes, expf.c)

A NaN comes out as it went in. All of it is plain arithmetic in a fixed order, so a number has one result wherever it stands.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

FAST = {"reassoc", "contract", "nsz"}
"""Sums may be reordered for vectors; NaN and infinity keep their meaning."""


def jit(function: Any = None, **options: Any) -> Any:
    """Compiled when first called and kept on disk, where numba finds a folder that it may write to."""
    if function is None:
        return lambda one: jit(one, **options)
    options = {"fastmath": FAST, "nogil": True, "error_model": "numpy", **options}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


@intrinsic
def lane(typing: Any, array: Any, index: Any) -> Any:
    """array[index] as a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        value = builder.load(_pointer(context, builder, kind, *arguments))
        if kind.dtype == types.float32:
            return value
        word, real = (context.get_value_type(one) for one in (types.uint32, types.float32))
        return builder.bitcast(builder.shl(builder.zext(value, word), context.get_constant(types.uint32, 16)), real)

    return types.float32(array, types.int64), generate


@intrinsic
def put(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """array[index] = value, rounded to even where the array is bf16."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, (array_, index_, number) = signature.args[0], arguments
        if kind.dtype == types.uint16:
            number = _narrowed(context, builder, number)
        builder.store(number, _pointer(context, builder, kind, array_, index_))
        return context.get_dummy_value()

    return types.void(array, types.int64, types.float32), generate


def _narrowed(context: Any, builder: Any, number: Any) -> Any:
    """A NaN becomes the usual one, as in torch."""
    word, half = (context.get_value_type(one) for one in (types.uint32, types.uint16))
    one, sixteen, below, usual = (context.get_constant(types.uint32, value) for value in (1, 16, 0x7FFF, 0x7FC0))
    bits = builder.bitcast(number, word)
    is_odd = builder.and_(builder.lshr(bits, sixteen), one)
    rounded = builder.lshr(builder.add(bits, builder.add(is_odd, below)), sixteen)
    is_nan = builder.fcmp_unordered("uno", number, number)
    return builder.trunc(builder.select(is_nan, usual, rounded), half)


@intrinsic
def power_of_two(typing: Any, exponent: Any) -> Any:
    """2^n of a whole number from -126 to 127, by its bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, real = (context.get_value_type(one) for one in (types.int32, types.float32))
        whole = builder.fptosi(arguments[0], word)
        biased = builder.add(whole, context.get_constant(types.int32, 127))
        return builder.bitcast(builder.shl(biased, context.get_constant(types.int32, 23)), real)

    return types.float32(types.float32), generate


LOWEST, HIGHEST = np.float32(-87.0), np.float32(88.0)
PER_LN2, LN2_HIGH, LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
C7, C6, C5 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
C4, C3, C2 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
HALF, ONE = np.float32(0.5), np.float32(1.0)


@jit(inline="always")
def exponential(x: Any) -> Any:
    """e^x in float32, cut at e^-87 and e^88."""
    low = LOWEST if x < LOWEST else x
    cut = HIGHEST if low > HIGHEST else low
    whole = np.floor(cut * PER_LN2 + HALF)
    rest = cut - whole * LN2_HIGH - whole * LN2_LOW
    series = ((((C7 * rest + C6) * rest + C5) * rest + C4) * rest + C3) * rest + C2
    return (series * rest * rest + rest + ONE) * power_of_two(whole)

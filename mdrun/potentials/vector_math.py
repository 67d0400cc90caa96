"""Exponential and logarithm of whole buffers, and a cutoff function, in arithmetic that compilers turn into vectors.

Numba calls the C library for each number on its own; many-body potentials spend most of their time there.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LOG2_E, LN_2 = 1 / math.log(2), math.log(2)
ROUNDER = 1.5 * 2.0**52  # added to a double, it leaves the nearest whole number in the low bits
ROUNDER_BITS = int(np.float64(ROUNDER).view(np.int64))
LEAST_EXPONENT, MOST_EXPONENT = -708.0, 709.0
ONE_BITS, MANTISSA_BITS = 1023 << 52, (1 << 52) - 1
SQRT_2, HALF_PI = math.sqrt(2), math.pi / 2


@intrinsic
def _bits(typing_context, x):
    """The 64 bits of a double as an integer."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def _double(typing_context, bits):
    """The double of 64 bits."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


# Contraction alone: a compiler that may reorder sums would cancel the rounder.
@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def exponential(x):
    """e to the x within 3e-16 (relative) for |x| < 10, |x| times 1e-16 farther out; NaN stays NaN.

    Below -708 the value there, above 709 likewise: neither zero nor infinity comes out.
    """
    x = LEAST_EXPONENT if x < LEAST_EXPONENT else x
    x = MOST_EXPONENT if x > MOST_EXPONENT else x
    shifted = x * LOG2_E + ROUNDER
    r = x - (shifted - ROUNDER) * LN_2
    # Taylor's series; |r| < 0.347 leaves 2e-16 behind the last term in each half of the even-odd split.
    s = r * r
    even = 1.0 + s * (1 / 2 + s * (1 / 24 + s * (1 / 720 + s * (1 / 40320 + s * (1 / 3628800 + s / 479001600)))))
    odd = 1.0 + s * (1 / 6 + s * (1 / 120 + s * (1 / 5040 + s * (1 / 362880 + s * (1 / 39916800 + s / 6227020800)))))
    return (even + r * odd) * _double((_bits(shifted) + 1023) << 52)


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def logarithm(x):
    """Natural logarithm of a double that is not negative, within 3e-16 of the larger of 1 and the result.

    Zero, and what is smaller than the smallest normal double, counts as about 1e-308; NaN stays NaN.
    """
    bits = _bits(x)
    mantissa = _double((bits & MANTISSA_BITS) | ONE_BITS)
    exponent = _double(ROUNDER_BITS + (bits >> 52) - 1023) - ROUNDER
    is_high = mantissa > SQRT_2
    mantissa = 0.5 * mantissa if is_high else mantissa
    exponent = exponent + 1.0 if is_high else exponent
    # log m = 2 artanh s
    s = (mantissa - 1.0) / (mantissa + 1.0)
    q = s * s
    series = 1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13 + q * (
        1 / 15 + q * (1 / 17 + q * (1 / 19 + q / 21))))))))  # fmt: skip
    return exponent * LN_2 + 2.0 * s * (1.0 + q * series) + 0.0 * x


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def exponentials(values, n):
    """Replace the first ``n`` values by their exponentials."""
    for q in range(n):
        values[q] = exponential(values[q])


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def logarithms(values, n):
    """Replace the first ``n`` values by their logarithms."""
    for q in range(n):
        values[q] = logarithm(values[q])

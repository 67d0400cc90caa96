"""Exponentials and logarithms of whole buffers, in arithmetic that compilers turn into vectors.

Numba calls the C library for each number on its own; many-body potentials would spend most of their time there.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from mdrun.potentials.arithmetic import exp

LEAST_EXPONENT = -345.0
LN_2, SQRT_2 = math.log(2), math.sqrt(2)
ONE_BITS, MANTISSA_BITS = 1023 << 52, (1 << 52) - 1
# A whole number added to this double's bits can be read off as a double.
ROUNDER = 1.5 * 2.0**52
ROUNDER_BITS = int(np.float64(ROUNDER).view(np.int64))


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


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def logarithm(x):
    """Natural logarithm of a double that is not negative, within 3e-16 of the larger of 1 and the result.

    Zero, and what is smaller than the smallest normal double, counts as about 1e-308; NaN and infinity give NaN.
    """
    bits = _bits(x)  # type: ignore[call-arg, var-annotated]
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
    return exponent * LN_2 + 2.0 * s * (1.0 + q * series) + 0.0 * (x - x)


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def exponentials(values, n):
    """Replace the first ``n`` values by their exponentials, to rounding of the exponent.

    Below -345 by the value there, 1e-150: a product of two is still a normal number; others cost a hundred times more.
    """
    for q in range(n):
        values[q] = exp(max(values[q], LEAST_EXPONENT))


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def logarithms(values, n):
    """Replace the first ``n`` values by their logarithms."""
    for q in range(n):
        values[q] = logarithm(values[q])

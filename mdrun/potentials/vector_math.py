"""Functions of whole vectors that many-body potentials need beside those of ``arithmetic``: branch-free arithmetic."""

from __future__ import annotations

import math

from llvmlite import ir
from numba import njit, types

from mdrun.vectors import choose, intrinsic, llvm_vector

LN_2, SQRT_2 = math.log(2), math.sqrt(2)


@intrinsic
def mantissa_and_exponent(typing_context, x):
    """m within 1 ... 2 and whole e with x = m 2^e, of normal numbers; both as floating-point vectors."""
    n_bits, n_mantissa, bias = (32, 23, 127) if x.dtype == types.float32 else (64, 52, 1023)
    result = types.UniTuple(x, 2)

    def emit(context, builder, sig, args):
        vector, item = llvm_vector(x), ir.IntType(n_bits)
        integers = ir.VectorType(item, x.count)

        def constant(value: int):
            return ir.Constant(integers, [value] * x.count)

        bits = builder.bitcast(args[0], integers)
        of_one = builder.or_(builder.and_(bits, constant((1 << n_mantissa) - 1)), constant(bias << n_mantissa))
        exponent = builder.sub(builder.lshr(bits, constant(n_mantissa)), constant(bias))
        if n_bits == 64:  # by way of int32, which AVX2 can convert from as well
            exponent = builder.trunc(exponent, ir.VectorType(ir.IntType(32), x.count))
        return context.make_tuple(builder, result, [builder.bitcast(of_one, vector), builder.sitofp(exponent, vector)])

    return result(x), emit


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def logarithm(x):
    """Natural logarithms of numbers that are not negative, to rounding of the larger of 1 and the result.

    Zero, and what is smaller than the smallest normal number, counts as about that; NaN and infinity give NaN.
    """
    mantissa, exponent = mantissa_and_exponent(x)
    is_high = mantissa > SQRT_2
    mantissa = choose(is_high, 0.5 * mantissa, mantissa)
    exponent = choose(is_high, exponent + 1.0, exponent)
    # log m = 2 artanh s
    s = (mantissa - 1.0) / (mantissa + 1.0)
    q = s * s
    series = 1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13 + q * (
        1 / 15 + q * (1 / 17 + q * (1 / 19 + q * (1 / 21)))))))))  # fmt: skip
    return exponent * LN_2 + 2.0 * s * (1.0 + q * series) + 0.0 * (x - x)


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def sine_and_cosine(x):
    """Of angles within -π/2 ... π/2, to 1e-16."""
    h = 0.5 * x
    q = h * h
    # Taylor series of the half angle
    sine = h * (1 + q * (-1 / 6 + q * (1 / 120 + q * (-1 / 5040 + q * (1 / 362880 + q * (-1 / 39916800 + q * (
        1 / 6227020800 + q * (-1 / 1307674368000))))))))  # fmt: skip
    cosine = 1 + q * (-1 / 2 + q * (1 / 24 + q * (-1 / 720 + q * (1 / 40320 + q * (-1 / 3628800 + q * (
        1 / 479001600 + q * (-1 / 87178291200 + q * (1 / 20922789888000))))))))  # fmt: skip
    return 2.0 * sine * cosine, (cosine - sine) * (cosine + sine)

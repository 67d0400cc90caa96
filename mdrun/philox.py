"""Counter-based random numbers: what an atom draws depends on its id and the step, not on the rank that owns it.

Philox 4x32-10: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, SC'11 (2011), doi 10.1145/2063384.2063405.

Each (key, counter) gives four words of 32 random bits. Here the key is the seed, low word first, and the counter is

    word 0   low 32 bits of the atom's id
    word 1   stream (high 16 bits), bits 32 to 47 of the id (low 16 bits)
    word 2   low 32 bits of the step
    word 3   high 32 bits of the step

so no two (seed, stream, step, id) share their numbers.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import torch
from numba import njit, prange
from numba.extending import intrinsic, register_jitable
from torch import Tensor

from mdrun.errors import InputError

STREAM_VELOCITIES = 0  # starting velocities; step 0
STREAM_LANGEVIN = 1  # the Langevin thermostat's noise; the step that it acts in
STREAM_BUSSI = 2  # stochastic velocity rescaling; half steps
STREAM_CELL = 5  # stochastic cell rescaling; the step
STREAM_COLLISIONS, STREAM_COLLIDED = 3, 4  # the Andersen thermostat's: who collides, and what with; the step

# Numba turns a sum of uint64 and a literal into a float: every number here has its type.
MULTIPLIER_0, MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_0, WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW32, LOW30, LOW16 = np.uint64(0xFFFFFFFF), np.uint64(0x3FFFFFFF), np.uint64(0xFFFF)
SHIFT16, SHIFT30, SHIFT32 = np.uint64(16), np.uint64(30), np.uint64(32)


@njit(cache=True)
def philox4x32(counter, key):
    """Four random words (uint64 below 2^32).

    Args:
        counter: four words of 32 bits.
        key: two words of 32 bits.
    """
    c0, c1, c2, c3 = (
        np.uint64(counter[0]),
        np.uint64(counter[1]),
        np.uint64(counter[2]),
        np.uint64(counter[3]),
    )
    return _rounds(c0, c1, c2, c3, np.uint64(key[0]), np.uint64(key[1]))


def normals(seed: int, stream: int, step: int, ids: Tensor) -> Tensor:
    """Three independent standard normals for each atom, by Box and Muller's method.

    The same bits on every machine, in whatever order and company the ids come: nothing but exactly rounded
    operations is used. Values end at 6.66, where 3e-11 of the distribution is left.

    Args:
        seed: from 0 to 2^64 - 1.
        stream: what the numbers are for, from 0 to 2^16 - 1; constants above.
        step: from 0 to 2^64 - 1.
        ids: (n,) int64, from 0 to 2^48 - 1.

    Returns:
        (n, 3) float64.

    Raises:
        InputError: the seed is out of range.
    """
    if not 0 <= seed < 2**64:
        raise InputError(f"--seed must be from 0 to 2^64 - 1 = {2**64 - 1}, not {seed}.")
    if not (0 <= stream < 2**16 and 0 <= step < 2**64):
        raise ValueError(f"stream {stream} or step {step} does not fit the counter")
    out = np.empty((len(ids), 3))
    _normals(np.uint64(seed), np.uint64(stream), np.uint64(step), ids.numpy(), out)
    return torch.from_numpy(out)


@register_jitable
def _rounds(c0, c1, c2, c3, k0, k1):
    for _ in range(10):
        product_0, product_1 = MULTIPLIER_0 * c0, MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> SHIFT32) ^ c1 ^ k0,
            product_1 & LOW32,
            (product_0 >> SHIFT32) ^ c3 ^ k1,
            product_0 & LOW32,
        )
        k0, k1 = (k0 + WEYL_0) & LOW32, (k1 + WEYL_1) & LOW32
    return c0, c1, c2, c3


# No fastmath: a contracted or reordered sum could round differently in a vector and in what is left over.
@njit(parallel=True, cache=True, error_model="numpy")
def _normals(seed, stream, step, ids, out):
    for i in prange(len(ids)):
        atom = np.uint64(ids[i])
        w0, w1, w2, w3 = _rounds(
            atom & LOW32,
            (stream << SHIFT16) | ((atom >> SHIFT32) & LOW16),
            step & LOW32,
            step >> SHIFT32,
            seed & LOW32,
            seed >> SHIFT32,
        )
        radius = _radius(w0)
        cosine, sine = _direction(w1)
        out[i, 0] = radius * cosine
        out[i, 1] = radius * sine
        radius = _radius(w2)
        cosine, sine = _direction(w3)
        out[i, 2] = radius * cosine


@intrinsic
def _bits_of(typing_context, x):
    """The 64 bits of a float64."""

    def write(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return numba.int64(numba.float64), write


@intrinsic
def _float_of(typing_context, bits):
    """The float64 of 64 bits."""

    def write(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return numba.float64(numba.int64), write


LN2 = math.log(2)
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD  # of sqrt(1/2)
QUARTER_TURN = math.pi / 2 / 2**30
HALF_RANGE = 2.0**29 - 0.5  # angles lie symmetrically about zero
S3, S5, S7, S9, S11, S13, S15 = ((-1) ** (n // 2) / math.factorial(n) for n in range(3, 16, 2))
C2, C4, C6, C8, C10, C12, C14, C16 = ((-1) ** (n // 2) / math.factorial(n) for n in range(2, 17, 2))


@register_jitable
def artanh_series(t):
    """artanh(t) / t for the t of ``_radius``, a number or a tensor: the first term left out is below 1e-17."""
    t2 = t * t
    t4 = t2 * t2
    return (
        (1.0 + t2 * (1 / 3))
        + t4 * ((1 / 5 + t2 * (1 / 7)) + t4 * ((1 / 9 + t2 * (1 / 11))
        + t4 * ((1 / 13 + t2 * (1 / 15)) + t4 * (1 / 17 + t2 * (1 / 19)))))
    )  # fmt: skip


@register_jitable
def _radius(word):
    """sqrt(-2 ln u) of the uniform u = (word + 1) / 2^32."""
    bits: int = _bits_of(np.float64(np.int64(word) + 1))  # type: ignore[call-arg]
    # u 2^32 = 2^exponent m with m in [sqrt(1/2), sqrt(2))
    exponent = (bits - SQRT_HALF_BITS) >> 52
    m = _float_of(bits - (exponent << 52))
    # ln m = 2 artanh((m - 1) / (m + 1))
    t = (m - 1.0) / (m + 1.0)
    log = (np.float64(exponent) - 32.0) * LN2 + 2.0 * t * artanh_series(t)
    return math.sqrt(max(-2.0 * log, 0.0))


@register_jitable
def _direction(word):
    """Cosine and sine of an angle uniform in a turn: quarter turns (2 bits) plus one within ±π/4 (30 bits)."""
    quarters = word >> SHIFT30
    angle = (np.float64(np.int64(word & LOW30)) - HALF_RANGE) * QUARTER_TURN
    a2 = angle * angle
    sine = angle * (1.0 + a2 * (S3 + a2 * (S5 + a2 * (S7 + a2 * (S9 + a2 * (S11 + a2 * (S13 + a2 * S15)))))))
    cosine = 1.0 + a2 * (C2 + a2 * (C4 + a2 * (C6 + a2 * (C8 + a2 * (C10 + a2 * (C12 + a2 * (C14 + a2 * C16)))))))
    # a quarter turn takes (c, s) to (-s, c)
    odd, half = quarters & np.uint64(1), quarters & np.uint64(2)
    turned_cosine = -sine if odd else cosine
    turned_sine = cosine if odd else sine
    return (-turned_cosine if half else turned_cosine), (-turned_sine if half else turned_sine)

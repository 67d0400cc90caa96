"""Counter-based random numbers: noise that is a function of seed, step and atom, not of who computes it.

Philox 4x32-10 (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, SC'11, doi 10.1145/2063384.2063405). The key is the
seed; the counter holds the low 32 bits of the atom's id, its high 16 bits beside a 16-bit stream, and the step.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mdrun.errors import InputError

STREAM_VELOCITIES = 0
STREAM_LANGEVIN = 1

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


@njit(cache=True, inline="always")
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Four random 32-bit words from four words of counter and two of key, all held in uint64."""
    for _ in range(10):
        p0 = _MULTIPLIERS[0] * c0
        p1 = _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _WEYL[0]) & _LOW
        k1 = (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def normals(seed: int, stream: int, step: int, ids: Tensor) -> Tensor:
    """Three independent standard normals for each atom.

    Args:
        seed: in [0, 2⁶⁴).
        stream: which use of randomness, so that two never share a number; one of the ``STREAM_`` constants.
        step: not negative.
        ids: (n,) int64 in [0, 2⁴⁸).

    Returns:
        (n, 3) float64. Box-Muller from 32-bit uniforms reaches 6.7 standard deviations.

    Raises:
        InputError: the seed is out of range.
    """
    if not 0 <= seed < 2**64:
        raise InputError(f"the seed must lie in [0, 2^64), not {seed}.")
    out = np.empty((len(ids), 3))
    _fill_normals(np.uint64(seed), np.uint64(stream), np.uint64(step), ids.numpy(), out)
    return torch.from_numpy(out)


@njit(parallel=True, cache=True)
def _fill_normals(seed, stream, step, ids, out):
    scale = 2.0**-32
    for i in prange(len(ids)):
        atom = np.uint64(ids[i])
        w0, w1, w2, w3 = philox4x32(
            atom & _LOW, (atom >> _32) | (stream << np.uint64(16)), step & _LOW, step >> _32, seed & _LOW, seed >> _32
        )
        # (w + 1/2) / 2³² lies inside (0, 1): its logarithm is finite
        r0 = math.sqrt(-2.0 * math.log((w0 + 0.5) * scale))
        r1 = math.sqrt(-2.0 * math.log((w2 + 0.5) * scale))
        angle0 = 2.0 * math.pi * (w1 + 0.5) * scale
        out[i, 0] = r0 * math.cos(angle0)
        out[i, 1] = r0 * math.sin(angle0)
        out[i, 2] = r1 * math.cos(2.0 * math.pi * (w3 + 0.5) * scale)

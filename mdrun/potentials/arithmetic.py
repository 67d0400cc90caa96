"""The functions that a pair formula may call: ``exp``, ``exp2``, ``sqrt``, ``erfc``, ``select`` and ``floor_to_index``.

Inside Numba's loops they are arithmetic and nothing else, because one call of the mathematical library keeps a whole
loop scalar; called from Python they are torch's for tensors and NumPy's for everything else (numbers, arrays, complex
steps). NaN in, NaN out.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import torch
from numba.extending import overload

from mdrun.vectors import Vector, choose, floor, power_of_two, square_root, to_index

LN2 = math.log(2)
LOG2_E = 1 / LN2

# Taylor series of 2^f: the first term left out is below 2e-16 for |f| ≤ 1/2.
_C = tuple(LN2**n / math.factorial(n) for n in range(13))
C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12 = _C[1:]
# In single precision, where a double among the operands would make everything double.
S0, S1, S2, S3, S4, S5, S6 = (np.float32(c) for c in _C[:7])
ZERO, HALF, LOG2_E_SINGLE, LOWEST, HIGHEST = (np.float32(c) for c in (0.0, 0.5, LOG2_E, -125.0, 127.0))


def exp(x):
    return torch.exp(x) if isinstance(x, torch.Tensor) else np.exp(x)


def sqrt(x):
    return torch.sqrt(x) if isinstance(x, torch.Tensor) else np.sqrt(x)


def erfc(x):
    """Complementary error function of x ≥ 0; in Numba's loops to 1e-15, and to 5e-14 of its value."""
    return torch.special.erfc(x) if isinstance(x, torch.Tensor) else math.erfc(x)


def select(condition, a, b):
    """``a`` where ``condition`` holds, else ``b``; both are computed."""
    if isinstance(condition, torch.Tensor):
        return torch.where(condition, a, b)
    return a if condition else b


def floor_to_index(y, last):
    """The whole number below y within 0 ... last, to index with; NaN gives 0."""
    if isinstance(y, torch.Tensor):
        return torch.minimum(torch.nan_to_num(y, nan=0.0).clamp(min=0.0), torch.as_tensor(last, dtype=y.dtype)).long()
    return int(min(max(0.0, y), last))


def exp2(y):
    """2^y to rounding for |y| < 1000, in single precision for |y| < 125; beyond, anything."""
    return torch.exp2(y) if isinstance(y, torch.Tensor) else np.exp2(y)


@overload(exp2, inline="always")
def _exp2(y):
    return _single_exp2 if _item_of(y) == numba.float32 else _double_exp2


def _item_of(x):
    """The type of a number, or of a vector's numbers."""
    return x.dtype if isinstance(x, Vector) else x


def _single_exp2(y):
    whole = floor(y + HALF)
    f = y - whole
    f2 = f * f
    low, middle, high = S0 + S1 * f, S2 + S3 * f, S4 + S5 * f
    return (low + f2 * (middle + f2 * (high + f2 * S6))) * power_of_two(whole)


def _double_exp2(y):
    whole = floor(y + 0.5)
    f = y - whole
    f2 = f * f
    f4 = f2 * f2
    low = (1.0 + C1 * f) + f2 * (C2 + C3 * f)
    middle = (C4 + C5 * f) + f2 * (C6 + C7 * f)
    high = (C8 + C9 * f) + f2 * (C10 + C11 * f) + f4 * C12
    return (low + f4 * (middle + f4 * high)) * power_of_two(whole)


# A function to LLVM, which inlines it as well, and compiles a loop of four exponentials in a fifth of the time that
# Numba's own inlining takes.
@overload(exp, jit_options={"fastmath": {"contract"}})
def _exp(x):
    # min and max keep their first argument where it is NaN
    def formula(x):
        return exp2(min(max(x * LOG2_E, -1021.0), 1023.0))

    def in_single(x):
        return exp2(min(max(x * LOG2_E_SINGLE, LOWEST), HIGHEST))

    return in_single if _item_of(x) == numba.float32 else formula


@overload(sqrt, inline="always")
def _sqrt(x):
    return lambda x: square_root(x)


@overload(floor_to_index, inline="always")
def _floor_to_index(y, last):
    # max keeps its first argument where the second is NaN
    if isinstance(y, Vector):
        return lambda y, last: to_index(min(max(0.0, y), last))
    if y == numba.float32:
        return lambda y, last: np.int64(to_index(min(max(ZERO, y), np.float32(last))))
    return lambda y, last: np.int64(to_index(min(max(0.0, y), last)))


@overload(select, inline="always")
def _select(condition, a, b):
    return lambda condition, a, b: choose(condition, a, b)


@overload(erfc)
def _erfc(x):
    def formula(x):
        # exp(x²) erfc(x) = t P(u), t = 3 / (3 + x), u in -1 ... 1 for x in 27 ... 0: interpolated at Chebyshev's nodes
        t = 3.0 / (3.0 + x)
        u = (2.0 / 0.9) * (t - 0.1) - 1.0
        v = u * u
        even = -1.4037348672151309e-09 + v * 2.1424420264835555e-10
        even = 7.270990366449905e-08 + v * (-1.5394739137240617e-10 + v * even)
        even = 7.4612680559339486e-06 + v * (-8.752808263790235e-07 + v * even)
        even = -0.0006137141412058001 + v * (-3.682199957731236e-05 + v * even)
        even = 0.18651762097473942 + v * (0.029010523509211305 + v * even)
        even = 0.389523774255242 + v * even
        odd = 1.1457069540250152e-08 + v * -9.391551683607756e-10
        odd = 6.25786879738431e-07 + v * (-8.848915083508975e-08 + v * odd)
        odd = 4.7028310918773594e-05 + v * (-4.89512460639461e-06 + v * odd)
        odd = 0.005006502800573907 + v * (-0.0005358989309720983 + v * odd)
        odd = 0.3033736718142138 + v * (0.08770500336212393 + v * odd)
        return t * (even + u * odd) * exp(-x * x)

    return formula

"""Vectors in Numba code against plain NumPy, number by number."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit, types

from mdrun import vectors
from mdrun.buffers import load, store
from mdrun.lanes import LANES, indices_at, rows_at
from mdrun.lookup import FEW, table_rows
from mdrun.vectors import choose, floor, n_lanes, power_of_two, square_root, to_index, total, zeros

DTYPES = [np.float64, np.float32]


def lanes_of(dtype: type) -> int:
    return LANES if dtype is np.float32 else LANES // 2


@njit
def identity(x):
    return indices_at(np.arange(16).astype(np.int32), 0, x)


@njit
def everything(x, y, number, out):
    """One row of ``out`` for each operation."""
    index = identity(x)
    a, b = x[index], y[index]
    store(a + b, out[0], 0)
    store(a - number, out[1], 0)
    store(number * a, out[2], 0)
    store(2.5 / b, out[3], 0)
    store(-a, out[4], 0)
    store(choose(a < b, a, 0), out[5], 0)
    store(choose(a >= number, 1.0, np.nan), out[6], 0)
    store(min(a, b), out[7], 0)
    store(max(number, a), out[8], 0)
    store(floor(a), out[9], 0)
    store(square_root(b * b), out[10], 0)
    store(power_of_two(floor(a)), out[11], 0)
    store(a - index, out[12], 0)
    c = zeros(x)
    c -= a
    c *= 2
    store(c, out[13], 0)
    store(choose(number > 0, a, b), out[14], 0)
    store(x[to_index(choose(a > 0, 1.0, 0.0))], out[15], 0)
    store((b * b) ** 0.5, out[16], 0)
    store(a**3, out[17], 0)
    store(choose(a == floor(a), 1.0, a), out[18], 0)
    store(choose(index == 3, load(y, 0), load(out[17], 0)), out[19], 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_do_to_each_lane_what_numpy_does(dtype):
    n = lanes_of(dtype)
    rng = np.random.default_rng(1)
    x, y, number = rng.normal(0, 3, n).astype(dtype), rng.normal(0, 3, n).astype(dtype), dtype(0.7)
    x[1] = 2.0
    out = np.empty((20, n), dtype)
    everything(x, y, number, out)
    expected = [
        x + y, x - number, number * x, 2.5 / y, -x, np.where(x < y, x, 0), np.where(x >= number, 1, np.nan),
        np.minimum(x, y), np.maximum(x, number), np.floor(x), np.abs(y), 2.0 ** np.floor(x), x - np.arange(n),
        -2 * x, x, x[(x > 0).astype(int)], np.abs(y), x**3, np.where(x == 2, 1, x),
        np.where(np.arange(n) == 3, y, x**3),
    ]  # fmt: skip
    for row, (found, truth) in enumerate(zip(out, expected, strict=True)):
        np.testing.assert_allclose(found, truth, rtol=3 * np.finfo(dtype).eps, err_msg=f"row {row}")


@njit
def with_nan(x, out):
    nan = x[identity(x)]
    store(choose(nan >= 1.0, 1.0, 2.0), out[0], 0)
    store(choose(nan < 1.0, 1.0, 2.0), out[1], 0)
    store(max(0.0, nan), out[2], 0)
    store(max(nan, 0.0), out[3], 0)
    store(nan + zeros(x), out[4], 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_compares_false_and_stays(dtype):
    n = lanes_of(dtype)
    out = np.empty((5, n), dtype)
    with_nan(np.full(n, np.nan, dtype), out)
    assert (out[:3] == np.array([2.0, 2.0, 0.0])[:, None]).all()
    assert np.isnan(out[3:]).all()


@njit
def sums(x):
    return total(x[identity(x)], 0.0), total(x[identity(x)], x.dtype.type(0)), n_lanes(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_totals_are_taken_in_the_type_that_is_asked_for(dtype):
    n = lanes_of(dtype)
    x = np.full(n, 1e-8, dtype)
    x[0] = 1.0
    wide, own, count = sums(x)
    assert count == n
    assert abs(wide - (1 + (n - 1) * float(x[1]))) < 1e-15
    assert own == dtype(own)


@njit
def looked_up(source, index, table, few, out):
    x, y, z, w = rows_at(source, index, 3)
    store(x, out[0], 0)
    store(y, out[1], 0)
    store(z, out[2], 0)
    rows = table_rows(table, w, few)
    for k in range(2):
        store(rows[k], out[3 + k], 0)  # by a column that is known only when it runs
    store(rows[2], out[5], 0)
    store(rows[5], out[6], 0)
    store(rows[to_index(w) + 1], out[7], 0)
    store(source[0][to_index(w) - to_index(w) + 2], out[8], 0)


@pytest.mark.parametrize("n_rows", [2, 3, FEW, 7])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_and_tables_are_looked_up(dtype, n_rows):
    n = lanes_of(dtype)
    rng = np.random.default_rng(2)
    source = rng.normal(size=(50, 4)).astype(dtype)
    source[:, 3] = rng.integers(n_rows, size=50)
    index = rng.integers(50, size=40).astype(np.int32)
    table = rng.normal(size=(n_rows, 8)).astype(dtype)
    out = np.empty((9, n), dtype)
    looked_up(source, index, table, (True,) * n_rows if n_rows <= FEW else True, out)
    chosen = source[index[3 : 3 + n]]
    types_ = chosen[:, 3].astype(int)
    np.testing.assert_array_equal(out[:3], chosen[:, :3].T)
    for found, column in zip(out[3:7], (0, 1, 2, 5), strict=True):
        np.testing.assert_array_equal(found, table[types_, column])
    np.testing.assert_array_equal(out[7], table[types_, types_ + 1])
    assert (out[8] == source[0, 2]).all()


def test_vectors_of_unlike_types_do_not_mix():
    assert vectors._common(vectors.vector_of(types.float64), vectors.vector_of(types.float32)) is None

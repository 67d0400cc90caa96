"""The vector steps against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from mdrun.lanes import LANES, append_near, append_negative, copy_lanes, gather_rows


@njit
def copied(source, start, target, place):
    copy_lanes(source, start, target, place)


@njit
def appended(x, y, z, rows, start, point, reach2, out, place):
    return append_near(x, y, z, rows, start, point[0], point[1], point[2], reach2, out, place)


@njit
def appended_negative(values, source, start, out, place):
    return append_negative(values, source, start, out, place)


@njit
def gathered(source, index, start, a, b, c, d):
    gather_rows(source, index, start, a, b, c, d)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_lanes_are_copied_and_nothing_else_is(dtype):
    source, target = np.arange(50, dtype=dtype), np.full(40, -1, dtype)
    copied(source, 7, target, 20)
    np.testing.assert_array_equal(target[20:36], np.arange(7, 23))
    assert (target[:20] == -1).all()
    assert (target[36:] == -1).all()


@pytest.mark.parametrize("seed", range(20))
def test_near_rows_are_appended_in_order(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (3, 40)).astype(np.float32)
    x[:, rng.integers(40)] = np.nan  # near nothing
    rows, out = rng.permutation(40).astype(np.int32), np.full(60, -1, np.int32)
    point, reach2 = rng.uniform(-1, 1, 3).astype(np.float32), np.float32(rng.uniform(0, 3))
    start, place = int(rng.integers(40 - LANES)), int(rng.integers(40))
    n = appended(*x, rows, start, point, reach2, out, place)
    chosen = slice(start, start + LANES)
    near = ((x[:, chosen] - point[:, None]) ** 2).sum(axis=0) < reach2
    np.testing.assert_array_equal(out[place : place + n], rows[chosen][near])
    assert (out[:place] == -1).all()


@pytest.mark.parametrize(("dtype", "lanes"), [(np.float64, 8), (np.float32, 16)])
@pytest.mark.parametrize("seed", range(10))
def test_rows_of_negative_values_are_appended_in_order_and_nan_is_negative(seed, dtype, lanes):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=40).astype(dtype)
    values[rng.integers(40, size=3)] = np.nan
    values[rng.integers(40, size=3)] = 0.0
    rows, out = rng.permutation(40).astype(np.int32), np.full(60, -1, np.int32)
    start, place = int(rng.integers(40 - lanes)), int(rng.integers(40))
    n = appended_negative(values, rows, start, out, place)
    chosen = slice(start, start + lanes)
    np.testing.assert_array_equal(out[place : place + n], rows[chosen][~(values[chosen] >= 0)])
    assert (out[:place] == -1).all()
    assert (out[place + lanes :] == -1).all()


@pytest.mark.parametrize(("dtype", "lanes"), [(np.float64, 8), (np.float32, 16)])
def test_columns_of_scattered_rows_are_gathered(dtype, lanes):
    rng = np.random.default_rng(3)
    source = rng.normal(size=(100, 4)).astype(dtype)
    index = rng.integers(0, 100, 48).astype(np.int32)
    columns = [np.full(48, -1, dtype) for _ in range(4)]
    gathered(source, index, 5, *columns)
    for column, target in enumerate(columns):
        np.testing.assert_array_equal(target[5 : 5 + lanes], source[index[5 : 5 + lanes], column])
        assert (target[:5] == -1).all()
        assert (target[5 + lanes :] == -1).all()


def test_a_column_that_is_not_wanted_is_left_out():
    source, index = np.arange(400.0).reshape(100, 4), np.arange(0, 32, 2, dtype=np.int32)
    z = np.zeros(16)
    gathered(source, index, 0, None, None, z, None)
    np.testing.assert_array_equal(z[:8], source[index[:8], 2])

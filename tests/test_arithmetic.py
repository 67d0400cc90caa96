"""What pair formulas may call: in Numba's loops, on numbers, on tensors."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest
import scipy.special
import torch
from numba import njit

from mdrun.lanes import LANES, indices_at
from mdrun.potentials import arithmetic
from mdrun.vectors import FASTMATH, Vector, n_lanes
from tests.test_vectors import store


def in_a_loop(function):
    """``function`` of each element, compiled as pair loops are: whole vectors at once."""

    @njit(fastmath=FASTMATH, error_model="numpy")
    def loop(x, index, out):
        for k in range(0, len(out), n_lanes(x)):
            store(function(x[indices_at(index, k, x)]), out, k)

    def apply(x):
        index = np.pad(np.arange(len(x), dtype=np.int32), (0, -len(x) % LANES))
        out = np.empty(len(index), x.dtype)
        loop(x, index, out)
        return out[: len(x)]

    return apply


@njit(fastmath=FASTMATH, error_model="numpy")
def power(x):
    return arithmetic.exp2(x)


@njit(fastmath=FASTMATH, error_model="numpy")
def exponential(x):
    return arithmetic.exp(x)


@njit(fastmath=FASTMATH, error_model="numpy")
def complementary_error(x):
    return arithmetic.erfc(x)


def test_single_precision_stays_single_and_is_right_to_its_rounding():
    """Half a last bit is 6e-8; an exponential inherits the rounding of its argument."""
    for function, truth, x, slack in (
        (power, np.exp2, np.linspace(-124, 126, 100_001), 0.0),
        (exponential, np.exp, np.linspace(-85, 85, 100_001), 1.0),
        (complementary_error, scipy.special.erfc, np.linspace(0, 8, 100_001), 1.0),
    ):
        x = x.astype(np.float32)
        found, expected = in_a_loop(function)(x), truth(x.astype(np.float64))
        growth = 1 + slack * np.maximum(np.abs(x), x * x if truth is scipy.special.erfc else 0)
        assert np.abs((found / expected - 1) / growth).max() < 6e-7
        assert function.nopython_signatures[-1].return_type == Vector(numba.float32, 16)


def test_single_exponentials_beyond_all_numbers_neither_wrap_around_nor_hide_nan():
    tiny, huge, nan = in_a_loop(exponential)(np.array([-1e6, 1e6, np.nan], np.float32))
    assert 0 <= tiny < 1e-37
    assert huge > 1e37
    assert math.isnan(nan)


def test_numbers_alone_have_the_same_functions():
    for function, expected in ((power, 2**-1.5), (exponential, math.exp(-1.5))):
        assert math.isclose(function(-1.5), expected, rel_tol=4e-16)
        assert math.isclose(function(np.float32(-1.5)), expected, rel_tol=2e-7)
        assert function.nopython_signatures[-1].return_type == numba.float32


def test_powers_of_two_are_right_to_rounding():
    powers = in_a_loop(power)
    y = np.random.default_rng(1).uniform(-900, 900, 100_000)
    np.testing.assert_allclose(powers(y), np.exp2(y), rtol=7e-16)
    # exact where the exponent is whole
    assert powers(np.array([-3.0, 0.0, 5.0])).tolist() == [0.125, 1.0, 32.0]


@pytest.fixture(scope="module")
def exponentials():
    return in_a_loop(exponential)


def test_exponentials_are_right_to_the_rounding_of_their_argument(exponentials):
    x = np.linspace(-700, 700, 100_001)
    error = np.abs(exponentials(x) / np.exp(x) - 1)
    assert (error < 4e-16 + 2e-16 * np.abs(x)).all()


def test_exponentials_beyond_all_numbers_neither_wrap_around_nor_hide_nan(exponentials):
    tiny, huge, nan = exponentials(np.array([-1e6, 1e6, np.nan]))
    assert 0 <= tiny < 1e-300
    assert huge > 1e300
    assert math.isnan(nan)


def test_the_complementary_error_function_is_that_of_scipy():
    erfc = complementary_error
    x = np.linspace(0, 25, 100_001)
    found, expected = in_a_loop(erfc)(x), scipy.special.erfc(x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(found, expected, rtol=5e-14)
    assert np.isnan(in_a_loop(erfc)(np.array([np.nan]))).all()


def test_selection_takes_whole_values_whatever_the_other_is():
    @njit(fastmath=FASTMATH, error_model="numpy")
    def positive(x):
        return arithmetic.select(x > 0, arithmetic.sqrt(x), np.nan)

    assert in_a_loop(positive)(np.array([4.0, -1.0]))[0] == 2.0
    assert np.isnan(in_a_loop(positive)(np.array([4.0, -1.0]))[1])


def test_the_same_functions_serve_tensors_and_numbers():
    x = np.array([0.3, 1.7, 2.9])
    tensor = torch.from_numpy(x)
    for name, expected in (("exp", np.exp(x)), ("sqrt", np.sqrt(x)), ("erfc", scipy.special.erfc(x))):
        function = getattr(arithmetic, name)
        np.testing.assert_allclose(function(tensor).numpy(), expected, rtol=1e-14)
        np.testing.assert_allclose([function(v) for v in x.tolist()], expected, rtol=1e-14)
    assert arithmetic.select(tensor > 1, tensor, 0.0).tolist() == [0.0, 1.7, 2.9]
    assert arithmetic.select(False, 1.0, 2.0) == 2.0

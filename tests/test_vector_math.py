"""Functions of vectors against NumPy in extended precision."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from mdrun.buffers import load, store
from mdrun.potentials.vector_math import logarithm, sine_and_cosine
from mdrun.vectors import n_lanes

DTYPES = [np.float64, np.float32]


@njit
def fill(x, logarithms, sines, cosines):
    for k in range(0, len(x), n_lanes(x)):
        store(logarithm(load(x, k)), logarithms, k)
        sine, cosine = sine_and_cosine(load(x, k))
        store(sine, sines, k)
        store(cosine, cosines, k)


def values(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    out = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    fill(x, *out)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
def test_logarithms_are_right_to_rounding(dtype):
    x = np.concatenate([np.exp(np.linspace(-87, 87, 1600)), np.linspace(0.5, 2, 1600)]).astype(dtype)
    expected = np.log(x.astype(np.longdouble))
    error = np.abs(values(x)[0] - expected) / np.maximum(1, np.abs(expected))
    assert error.max() < np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_logarithm_of_zero_is_finite_and_that_of_no_number_is_none(dtype):
    x = np.zeros(16, dtype)
    x[1:3] = np.nan, np.inf
    found = values(x)[0]
    assert found[0] == pytest.approx(np.log(np.finfo(dtype).tiny), rel=0.01)
    assert np.isnan(found[1:3]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sines_and_cosines_are_right_to_rounding(dtype):
    x = np.linspace(-np.pi / 2, np.pi / 2, 3200).astype(dtype)
    _, sines, cosines = values(x)
    wide = x.astype(np.longdouble)
    assert np.abs(sines - np.sin(wide)).max() < 2 * np.finfo(dtype).eps
    assert np.abs(cosines - np.cos(wide)).max() < 2 * np.finfo(dtype).eps

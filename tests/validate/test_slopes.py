"""Derivatives that are right, or known to be doubtful, whatever the function does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mdrun.validate.slopes import is_trusted, slope

WIDTHS = (1e-3, 1e-4, 1e-5)
TOLERANCE = 1e-6


@pytest.mark.parametrize("function", [math.sin, math.exp, lambda x: (x + 2) ** -12])
def test_smooth_functions_have_their_slope_at_the_first_widths(function):
    asked = []
    found = slope(lambda x: asked.append(x) or function(0.3 + x), WIDTHS, TOLERANCE)
    exact = {math.sin: math.cos(0.3), math.exp: math.exp(0.3)}.get(function, -12 * 2.3**-13)
    assert found.value == pytest.approx(exact, rel=1e-9)
    assert is_trusted(found, TOLERANCE)
    assert min(map(abs, asked)) > 5e-5


def test_steps_and_bends_never_spoil_a_trusted_slope():
    """A thousand functions with up to twenty steps or bends within the largest width; the seed is fixed."""
    rng = np.random.default_rng(8)
    n_trusted = 0
    for _ in range(1000):
        places = rng.uniform(-2e-3, 2e-3, rng.integers(1, 21))
        is_step = rng.random() < 0.5
        signs = rng.choice([-1.0, 1.0], len(places))

        def function(x, places=places, is_step=is_step, signs=signs):
            over = np.maximum(x - places, 0)
            return math.sin(x) + float((signs * ((over > 0) * 1e-4 if is_step else 0.05 * over)).sum())

        bends = 0.0 if is_step else float((0.05 * signs * (places < 0)).sum())
        found = slope(function, WIDTHS, TOLERANCE)
        if is_trusted(found, TOLERANCE):
            n_trusted += 1
            assert found.value == pytest.approx(1 + bends, abs=TOLERANCE)
    assert n_trusted > 500


def test_rounding_that_hides_the_slope_is_doubtful():
    found = slope(lambda x: float(np.float32(1e4 + x)), WIDTHS, TOLERANCE)
    assert not is_trusted(found, TOLERANCE)


def test_a_bend_beside_the_place_shows_at_the_narrowest_widths_alone():
    """Between 1e-4 and 1e-6 both differences agree on the mean of two slopes."""

    def function(x: float) -> float:
        return math.sin(x) + 1e-3 * max(x - 2e-7, 0.0)

    widths = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
    assert slope(function, widths, 1e-3, expected=1.0).value == pytest.approx(1.0005, abs=1e-4)
    assert slope(function, widths, 1e-4, expected=1.0).value == pytest.approx(1.0, abs=1e-6)
    assert slope(function, widths, 1e-4, expected=1.5).value == pytest.approx(1.0, abs=1e-6)

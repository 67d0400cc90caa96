"""What correlated samples are worth, against series whose correlation is known."""

from __future__ import annotations

import numpy as np
import pytest

from mdrun.validate.series import careful_inefficiency, drift, inefficiency


def correlated(n: int, memory: float, seed: int) -> np.ndarray:
    """x' = memory x + noise, of unit variance; g = (1 + memory) / (1 - memory)."""
    noise = np.random.default_rng(seed).normal(size=n) * (1 - memory**2) ** 0.5
    values = np.empty(n)
    values[0] = noise[0] / (1 - memory**2) ** 0.5
    for i in range(1, n):
        values[i] = memory * values[i - 1] + noise[i]
    return values


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9, 0.98])
def test_inefficiency_is_that_of_the_process(memory):
    """Within a fifth; the error of g is a few percent at this length. Seed fixed."""
    exact = (1 + memory) / (1 - memory)
    found = inefficiency(correlated(200_000, memory, 1))
    assert found == pytest.approx(exact, rel=0.2)
    assert exact < careful_inefficiency(correlated(200_000, memory, 2)) < 1.5 * exact


def test_a_constant_is_worth_itself():
    assert inefficiency(np.ones(100)) == 1.0


def test_a_drift_is_found_within_its_error():
    """Deviations of a hundred series in standard errors: a normal number's, but for the error of the error."""
    times = np.arange(2000) * 0.01
    off = []
    for seed in range(100):
        rate, error, rest = drift(times, 3.0 + 0.7 * times + correlated(2000, 0.8, seed))
        off.append((rate - 0.7) / error)
        assert abs(rest.mean()) < 1e-12
    assert np.std(off) == pytest.approx(1.0, abs=0.35)
    assert np.abs(off).max() < 5

"""A correlated series of numbers: what it is worth."""

from __future__ import annotations

import numpy as np

from mdrun.run.averages import autocorrelation

WINDOW = 5.0


def inefficiency(values: np.ndarray) -> float:
    """Samples that are worth one independent one: g = 1 + 2 Σ ρ(t), at least 1.

    The sum ends where the window is five times what it has reached: A. Sokal, in Functional Integration (1997),
    doi 10.1007/978-1-4899-0319-8_6; g is his 2 τ.
    """
    n = len(values)
    if n < 3 or values.var() <= 0:
        return 1.0
    sums = 2 * np.cumsum(autocorrelation(values)) - 1
    ends = np.flatnonzero(np.arange(n) >= WINDOW * sums / 2)
    return float(max(sums[ends[0]] if len(ends) else sums[-1], 1.0))


def careful_inefficiency(values: np.ndarray) -> float:
    """``inefficiency`` and twice its standard error, δg / g = sqrt(2 (2 M + 1) / n) with the window M = 5 g / 2.

    With g alone a series worth few samples would seem too far off too often.
    """
    g = inefficiency(values)
    return min(g * (1 + 2 * (2 * (WINDOW * g + 1) / len(values)) ** 0.5), float(len(values)))


def drift(times: np.ndarray, values: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Slope of a straight line through the series, its standard error, a careful one, and what is left beside it."""
    centred = times - times.mean()
    slope = float(centred @ (values - values.mean()) / (centred @ centred))
    rest = values - values.mean() - slope * centred
    error = float(np.sqrt(rest.var() * careful_inefficiency(rest) / (centred @ centred)))
    return slope, error, rest

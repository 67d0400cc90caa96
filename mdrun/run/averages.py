"""Means of what is logged, and their standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mdrun.run.simulation import Simulation
from mdrun.run.thermo import Thermometer

AVERAGED = (
    "temperature_K", "potential_eV", "total_eV", "conserved_eV", "enthalpy_eV", "pressure_GPa", "volume_A3",
    "density_g_cm3",
)  # fmt: skip
LEFT_OUT = 1 / 5  # of the rows, at the start: time to forget it
FEWEST = 16  # independent rows that an error can be told from
MOST_ROWS = 1 << 14  # kept in memory; of longer runs, means of 2, 4, 8 ... rows
ROUNDING = 1e-12  # a quantity that varies less, beside its mean, is a constant


@dataclass(frozen=True)
class Average:
    """A quantity's mean over a run.

    Attributes:
        name: a column of ``thermo.csv``.
        error: standard error of the mean; None where there is too little to tell it from, 0 of a constant.
        n_effective: how many independent rows would tell as much; 0 where it can't be known.
    """

    name: str
    mean: float
    error: float | None
    n_effective: float

    @property
    def is_constant(self) -> bool:
        return self.error == 0


@dataclass(frozen=True)
class Averages:
    """Of the rows that were logged after the first fifth of them.

    Attributes:
        n_rows, n_used: rows in all, and those that are averaged.
        averages: of the quantities that every used row knows.
    """

    n_rows: int
    n_used: int
    averages: tuple[Average, ...]


class Rows:
    """Keeps what is to be averaged each time it looks. The same on every rank."""

    def __init__(self, thermometer: Thermometer) -> None:
        self._thermometer = thermometer
        self._rows = np.empty((MOST_ROWS, len(AVERAGED)))
        self._n_kept, self._n_each = 0, 1  # rows kept, each the mean of so many
        self._sum, self._n_summed = np.zeros(len(AVERAGED)), 0  # the next one

    def __call__(self, sim: Simulation) -> None:
        thermo = self._thermometer(sim)
        self.add(np.array([getattr(thermo, name) for name in AVERAGED]))

    def add(self, row: np.ndarray) -> None:
        """Keep one more: (len(AVERAGED),) numbers."""
        self._sum = self._sum + row
        self._n_summed += 1
        if self._n_summed < self._n_each:
            return
        self._rows[self._n_kept] = self._sum / self._n_each
        self._sum, self._n_summed = np.zeros(len(AVERAGED)), 0
        self._n_kept += 1
        if self._n_kept == MOST_ROWS:
            self._n_kept, self._n_each = MOST_ROWS // 2, 2 * self._n_each
            self._rows[: self._n_kept] = (self._rows[0::2] + self._rows[1::2]) / 2

    def keep(self) -> dict[str, np.ndarray]:
        """All of it, for ``restore``."""
        counts = np.array([self._n_kept, self._n_each, self._n_summed])
        return {"averages_rows": self._rows[: self._n_kept], "averages_sum": self._sum, "averages_counts": counts}

    def restore(self, kept: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``keep`` gave."""
        self._n_kept, self._n_each, self._n_summed = (int(n) for n in kept["averages_counts"])
        self._rows[: self._n_kept] = kept["averages_rows"]
        self._sum = kept["averages_sum"].copy()

    def averages(self) -> Averages:
        """What there is to say now."""
        used = self._rows[math.ceil(LEFT_OUT * self._n_kept) : self._n_kept]
        series = dict(zip(AVERAGED, used.T, strict=True)) if len(used) else {}
        n_rows = self._n_kept * self._n_each + self._n_summed
        return Averages(n_rows, len(used) * self._n_each, averages_of(series))


def averages_of(series: Mapping[str, np.ndarray]) -> tuple[Average, ...]:
    """Of the quantities, (n,) each, that are known throughout.

    They are coupled: one that remembers too long to tell its error leaves its mark on the others, where a short series
    can't show it. Then no error is told but that of constants. What the ensemble conserves does not count: it wanders.
    """
    found = [average(name, values) for name, values in series.items() if np.isfinite(values).all()]
    wanders = {"conserved_eV"}
    if np.array_equal(series.get("total_eV", ()), series.get("conserved_eV", ())):
        wanders.add("total_eV")
    slow = [a for a in found if a.n_effective < FEWEST and not a.is_constant and a.name not in wanders]
    return tuple(replace(a, error=None) if slow and not a.is_constant else a for a in found)


def autocorrelation(values: np.ndarray) -> np.ndarray:
    """(n,) ρ(t) of a series that is not constant, from 1 at t = 0."""
    away = values - values.mean()
    return np.fft.irfft(np.abs(np.fft.rfft(away, 2 * len(values))) ** 2)[: len(values)] / float(away @ away)


def average(name: str, values: np.ndarray) -> Average:
    """Mean and standard error of a stationary series, (n,) and finite, n > 0.

    The error is what the scatter of block averages tends to as blocks grow (H. Flyvbjerg and H. G. Petersen, J. Chem.
    Phys. 91 (1989) 461, doi 10.1063/1.457480): s sqrt(g / n), with g = 1 + 2 Σ ρ(t) taken from the autocorrelation ρ,
    summed over pairs of times for as long as these are positive, none more than the one before (C. J. Geyer, Stat.
    Sci. 7 (1992) 473, doi 10.1214/ss/1177011137, section 3.3). Where few blocks would be left, it strays less from the
    truth than their scatter does. Anticorrelation, g < 1, is not counted on.
    """
    n, mean = len(values), float(values.mean())
    if n == 1:
        return Average(name, mean, None, 0.0)
    away = values - mean
    variance = float(away @ away) / n
    if math.sqrt(variance) <= ROUNDING * abs(mean):
        return Average(name, mean, 0.0, n)
    rho = autocorrelation(values)
    pairs = rho[: n // 2 * 2].reshape(-1, 2).sum(axis=1)  # ρ(0) + ρ(1), ρ(2) + ρ(3), ...
    ends = np.flatnonzero(pairs <= 0)
    falling = np.minimum.accumulate(pairs[: ends[0] if len(ends) else len(pairs)])
    inefficiency = max(2 * float(falling.sum()) - 1, 1.0)
    n_effective = n / inefficiency
    if n_effective < FEWEST:
        return Average(name, mean, None, n_effective)
    return Average(name, mean, math.sqrt(variance / (n_effective - 1)), n_effective)
